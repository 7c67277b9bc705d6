package bounds

import (
	"errors"
	"fmt"
)

// Faults collects the faults of a configuration or of flags, so that a user sees all of them at once.
type Faults struct {
	Owner string // begins each fault that If adds, as in "paint: "; "" for none
	errs  []error
}

// Add adds errors. It ignores those that are nil.
func (f *Faults) Add(errs ...error) { f.errs = append(f.errs, errs...) }

// If adds a fault, with the verbs of [fmt.Errorf], if wrong is true.
func (f *Faults) If(wrong bool, format string, args ...any) {
	if wrong {
		f.Add(fmt.Errorf(f.Owner+format, args...))
	}
}

// Err returns all faults, one a line; nil if there are none.
func (f *Faults) Err() error { return errors.Join(f.errs...) }
