package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// fields reads a JSON object by field name and collects all errors, so that a user sees all
// faults at once.
type fields struct {
	file string // for messages
	raw  map[string]json.RawMessage
	errs []error
}

func newFields(file string, data []byte) (*fields, error) {
	f := &fields{file: file}
	if err := json.Unmarshal(data, &f.raw); err != nil || f.raw == nil {
		return nil, damaged("%s is not a JSON object: %v", file, err)
	}
	return f, nil
}

func (f *fields) fail(err error)          { f.errs = append(f.errs, fmt.Errorf("%s: %w", f.file, err)) }
func (f *fields) err() error              { return errors.Join(f.errs...) }
func (f *fields) text(name string) string { return clip(string(bytes.TrimSpace(f.raw[name]))) }

// clip bounds how much of a file's text a message quotes.
func clip(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}

// has reports whether a field is present and not null. Writers use null for "off".
func (f *fields) has(name string) bool {
	v, ok := f.raw[name]
	return ok && !bytes.Equal(bytes.TrimSpace(v), []byte("null"))
}

// read decodes a field into dst, a pointer, and reports whether it has. It returns false if the
// field is absent, null or invalid; an invalid field is also recorded as an error, with want as
// the description of a valid value.
func (f *fields) read(name string, dst any, want string) bool {
	if !f.has(name) {
		return false
	}
	if err := json.Unmarshal(f.raw[name], dst); err != nil {
		f.fail(damaged("%s is %s, want %s", name, f.text(name), want))
		return false
	}
	return true
}

// count reads an integer in [1, maxCount]. If the field is absent, it returns fallback, and
// records an error if required is set. If the field is invalid, it records an error.
func (f *fields) count(name string, required bool, fallback int) int {
	return number(f, name, required, fallback, func(n int) bool { return n >= 1 && n <= maxCount }, "a whole number above 0, at most 16777216")
}

// positive reads a number above zero. It handles an absent field as count does.
func (f *fields) positive(name string, required bool, fallback float64) float64 {
	return number(f, name, required, fallback, func(v float64) bool { return v > 0 }, "a number above 0")
}

func number[T int | float64](f *fields, name string, required bool, fallback T, valid func(T) bool, want string) T {
	var v T
	switch {
	case !f.has(name):
		if required {
			f.fail(damaged("%s is missing, want %s", name, want))
		}
		return fallback
	case f.read(name, &v, want) && !valid(v):
		f.fail(damaged("%s is %v, want %s", name, v, want))
		return fallback
	}
	return v
}

// flag reads a boolean; absent means false.
func (f *fields) flag(name string) bool {
	b := false
	f.read(name, &b, "true or false")
	return b
}

// string reads a string; absent means fallback.
func (f *fields) string(name, fallback string) string {
	s := fallback
	f.read(name, &s, "a string")
	return s
}

// ids reads a token id or a list of token ids. ok is false if the field is absent, null or
// invalid.
func (f *fields) ids(name string) (ids []int, ok bool) {
	if !f.has(name) {
		return nil, false
	}
	one := 0
	if json.Unmarshal(f.raw[name], &one) == nil {
		return []int{one}, true
	}
	ok = f.read(name, &ids, "a token id or a list of them")
	return ids, ok
}
