// Package bounds sets defaults and checks bounds of configuration fields by their struct tags. It owns
// no state. Any goroutine may call it.
//
//	type Config struct {
//		Workers int           `default:"8" min:"1" max:"1<<16"`
//		Timeout time.Duration `default:"10s" above:"0s"`
//		Share   float64       `default:"0.9" above:"0" max:"1"`
//	}
//
//	func (c Config) WithDefaults() Config { return bounds.Fill(c) }
//	func (c Config) Validate() error      { return bounds.Check("paint", c) }
package bounds

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Fill returns c with its zero fields set to the values of their default tags, if they have one. It
// also fills embedded structs. It panics if a tag is malformed.
func Fill[T any](c T) T {
	fill(reflect.ValueOf(&c).Elem())
	return c
}

func fill(v reflect.Value) {
	for f, field := range v.Fields() {
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			fill(field)
		}
		text, ok := f.Tag.Lookup("default")
		if !ok || !field.IsZero() {
			continue
		}
		switch {
		case field.Kind() == reflect.String:
			field.SetString(text)
		case field.CanFloat():
			field.SetFloat(parse(f, "default", text))
		case field.CanUint():
			field.SetUint(uint64(parse(f, "default", text)))
		default:
			field.SetInt(int64(parse(f, "default", text)))
		}
	}
}

// Check returns an error that lists all fields of the struct c that are outside their bounds, one a
// line, such as "paint: Workers is -1, want 1 to 8" for the owner "paint". It returns nil if there are
// none. c may be a pointer to a struct. The bounds are the tags min, max, above (exclusive) and pow2:""
// for a power of two. A float with bounds must be finite. Embedded structs are checked too. Check
// panics if a tag is malformed.
func Check(owner string, c any) error {
	return check(reflect.ValueOf(c), func(format string, args ...any) error {
		return fmt.Errorf(owner+": "+format, args...)
	})
}

// CheckAs is Check, but each line of its error begins with cause instead of an owner, and the error
// wraps cause.
func CheckAs(cause error, c any) error {
	return check(reflect.ValueOf(c), func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{cause}, args...)...)
	})
}

func check(v reflect.Value, fault func(format string, args ...any) error) error {
	var errs []error
	for f, field := range reflect.Indirect(v).Fields() {
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			errs = append(errs, check(field, fault))
		}
		if want := broken(f, field); want != "" {
			errs = append(errs, fault("%s is %v, want %s", f.Name, field, want))
		}
	}
	return errors.Join(errs...)
}

// broken returns the bounds of a field, such as "1 to 8", if the field's value is outside its bounds.
// Otherwise, or if the field has no bounds, it returns "".
func broken(f reflect.StructField, field reflect.Value) string {
	least, hasLeast := f.Tag.Lookup("min")
	most, hasMost := f.Tag.Lookup("max")
	above, hasAbove := f.Tag.Lookup("above")
	_, pow2 := f.Tag.Lookup("pow2")
	if !hasLeast && !hasMost && !hasAbove && !pow2 {
		return ""
	}
	n := number(field)
	ok := !math.IsInf(n, 0) && !math.IsNaN(n) &&
		(!hasLeast || n >= parse(f, "min", least)) && (!hasMost || n <= parse(f, "max", most)) && (!hasAbove || n > parse(f, "above", above))
	switch {
	case ok && (!pow2 || int64(n)&(int64(n)-1) == 0):
		return ""
	case ok:
		return "a power of two"
	case hasAbove && hasMost:
		return "more than " + shown(f, above) + " and at most " + shown(f, most)
	case hasAbove:
		return "more than " + shown(f, above)
	case hasLeast && hasMost:
		return shown(f, least) + " to " + shown(f, most)
	case hasMost:
		return "at most " + shown(f, most)
	default:
		return "at least " + shown(f, least)
	}
}

func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	default:
		return v.Float()
	}
}

// shown returns a tag's text as an error shows it: 65536 for 1<<16, other text unchanged.
func shown(f reflect.StructField, text string) string {
	if strings.Contains(text, "<<") {
		return strconv.FormatInt(int64(parse(f, "bound", text)), 10)
	}
	return text
}

var duration = reflect.TypeFor[time.Duration]()

// parse returns the number in text, the value of the tag named tag: 64<<10, 0.9, or 10s for a
// duration. It panics if text is no number. Integers in tags are below 1<<53, so a float64 holds them
// exactly.
func parse(f reflect.StructField, tag, text string) float64 {
	if f.Type == duration {
		if d, err := time.ParseDuration(text); err == nil {
			return float64(d)
		}
	} else if factor, shift, ok := strings.Cut(text, "<<"); ok {
		n, err := strconv.ParseInt(factor, 10, 64)
		by, err2 := strconv.ParseUint(shift, 10, 6)
		if err == nil && err2 == nil {
			return float64(n << by)
		}
	} else if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	panic(fmt.Sprintf("bounds: field %s has the tag %s:%q, want a number", f.Name, tag, text))
}
