package jsonschema

import (
	"errors"
	"fmt"
	"strings"
)

// What an Error is at bottom.
var (
	ErrSchema      = errors.New("jsonschema: not a schema that can be met")
	ErrUnsupported = errors.New("jsonschema: not supported")
	ErrLimit       = errors.New("jsonschema: over a limit")
)

// Error says what is wrong with a schema, and where.
type Error struct {
	Pointer string // JSON pointer of the schema that has the keyword; "" is the root
	Keyword string // "" if it is not about one
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

// wrong, unsupported and tooMuch make Errors about a keyword of v.
func wrong(v *value, keyword, format string, args ...any) error {
	return &Error{v.pointer(), keyword, fmt.Sprintf(format, args...), ErrSchema}
}

func unsupported(v *value, keyword, format string, args ...any) error {
	return &Error{v.pointer(), keyword, fmt.Sprintf(format, args...), ErrUnsupported}
}

func tooMuch(v *value, keyword, format string, args ...any) error {
	return &Error{v.pointer(), keyword, fmt.Sprintf(format, args...), ErrLimit}
}
