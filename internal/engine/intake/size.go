package intake

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Size points to the fields that the configurations of all backends share.
type Size struct {
	PageTokens, Pages, KVTokens                         *int
	MaxSlots, MaxRows, MaxTokens, MaxInflight, MaxMoves *int
}

// Limits holds values for fields of a Size: their defaults, or their maxima.
type Limits struct{ Pages, MaxSlots, MaxRows, MaxTokens, MaxInflight, MaxMoves int }

// Fill sets the fields that are 0: PageTokens to 16, Pages to the number of pages that hold
// KVTokens tokens if KVTokens is positive, and the fields from MaxSlots to MaxMoves to their
// values in defaults.
func (s Size) Fill(defaults Limits) {
	set := func(field *int, v int) {
		if *field == 0 {
			*field = v
		}
	}
	set(s.PageTokens, 16)
	if *s.Pages == 0 && *s.KVTokens > 0 && *s.PageTokens > 0 {
		*s.Pages = kv.CeilPages(*s.KVTokens, *s.PageTokens)
	}
	set(s.MaxSlots, defaults.MaxSlots)
	set(s.MaxRows, defaults.MaxRows)
	set(s.MaxTokens, defaults.MaxTokens)
	set(s.MaxInflight, defaults.MaxInflight)
	set(s.MaxMoves, defaults.MaxMoves)
}

// Validate returns an error that names every invalid field with its value, or nil. name is the
// backend's name, which begins each error; most holds the maximum of each field.
func (s Size) Validate(name string, most Limits) error {
	var errs []error
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("%s: %s is %d, want %d to %d", name, field, v, lo, hi))
		}
	}
	within("PageTokens", *s.PageTokens, 1, 256)
	if n := *s.PageTokens; n > 0 && n&(n-1) != 0 {
		errs = append(errs, fmt.Errorf("%s: PageTokens is %d, want a power of two", name, n))
	}
	if *s.Pages == 0 {
		errs = append(errs, fmt.Errorf("%s: Pages and KVTokens are 0, set one of them", name))
	} else {
		within("Pages", *s.Pages, 1, most.Pages)
	}
	within("MaxSlots", *s.MaxSlots, 1, most.MaxSlots)
	within("MaxRows", *s.MaxRows, 1, most.MaxRows)
	within("MaxTokens", *s.MaxTokens, 1, most.MaxTokens)
	within("MaxInflight", *s.MaxInflight, 2, most.MaxInflight)
	within("MaxMoves", *s.MaxMoves, 1, most.MaxMoves)
	return errors.Join(errs...)
}
