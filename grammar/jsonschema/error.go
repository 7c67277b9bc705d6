package jsonschema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coppice-llm/coppice/internal/bail"
)

// The causes that an Error wraps.
var (
	ErrSchema      = errors.New("jsonschema: invalid or unsatisfiable schema")
	ErrUnsupported = errors.New("jsonschema: not supported")
	ErrLimit       = errors.New("jsonschema: over a limit")
)

// Error describes a fault of a schema and its place.
type Error struct {
	Pointer string // JSON pointer of the schema that has the keyword; "" is the root
	Keyword string // the keyword at fault; "" if the fault concerns none
	Msg     string
	Err     error // ErrSchema, ErrUnsupported or ErrLimit
}

func (e *Error) Error() string {
	place := "#" + e.Pointer
	if len(place) > 500 {
		place = strings.ToValidUTF8(place[:500], "") + "…"
	}
	if e.Keyword != "" {
		place += ", " + e.Keyword
	}
	return fmt.Sprintf("%v: %s: %s", e.Err, place, e.Msg)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// wrong, unsupported and tooMuch end the translation with an Error about a keyword of the schema v,
// "" for none. The Error wraps ErrSchema, ErrUnsupported or ErrLimit.
func wrong(v *value, keyword, format string, args ...any) {
	bail.Out(&Error{v.pointer(), keyword, fmt.Sprintf(format, args...), ErrSchema})
}

func unsupported(v *value, keyword, format string, args ...any) {
	bail.Out(&Error{v.pointer(), keyword, fmt.Sprintf(format, args...), ErrUnsupported})
}

func tooMuch(v *value, keyword, format string, args ...any) {
	bail.Out(&Error{v.pointer(), keyword, fmt.Sprintf(format, args...), ErrLimit})
}
