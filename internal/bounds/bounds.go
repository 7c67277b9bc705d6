// Package bounds sets defaults and checks bounds of configuration fields by their struct tags, and
// collects the faults of a configuration. It owns no state. Any goroutine may call it.
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
	"cmp"
	"encoding"
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
			field.SetFloat(parse(f.Type, "default", text))
		case field.CanUint():
			field.SetUint(uint64(parse(f.Type, "default", text)))
		default:
			field.SetInt(int64(parse(f.Type, "default", text)))
		}
	}
}

// Check returns an error that lists all fields of the struct c that are outside their bounds, one a
// line, such as "paint: Workers is -1, want 1 to 8" for the owner "paint". It returns nil if there are
// none. c may be a pointer to a struct. The bounds are the tags min, max, above (exclusive) and pow2:""
// for a power of two; those of a list are bounds of its elements. A float with bounds must be finite
// unless max is inf. Embedded structs are checked too. A field with a json tag has the name from there.
// Check panics if a tag is malformed.
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
		values := []reflect.Value{field}
		if field.Kind() == reflect.Slice {
			values = values[:0]
			for i := range field.Len() {
				values = append(values, field.Index(i))
			}
		}
		for _, value := range values {
			if want := Outside(f.Tag.Lookup, value); want != "" {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				errs = append(errs, fault("%s is %v, want %s", cmp.Or(name, f.Name), value, want))
			}
		}
	}
	return errors.Join(errs...)
}

// Outside returns the bounds of a value, such as "1 to 8", if the value is outside of them. Otherwise,
// or if it has no bounds, Outside returns "". tag looks up the tags that Check describes. They may hold
// any text of which the value's UnmarshalText makes a number.
func Outside(tag func(key string) (string, bool), v reflect.Value) string {
	least, hasLeast := tag("min")
	most, hasMost := tag("max")
	above, hasAbove := tag("above")
	_, pow2 := tag("pow2")
	if !hasLeast && !hasMost && !hasAbove && !pow2 {
		return ""
	}
	n, t := number(v), v.Type()
	ok := !math.IsNaN(n) && !math.IsInf(n, -1) && (hasMost || !math.IsInf(n, 1)) &&
		(!hasLeast || n >= parse(t, "min", least)) && (!hasMost || n <= parse(t, "max", most)) && (!hasAbove || n > parse(t, "above", above))
	switch {
	case ok && (!pow2 || int64(n)&(int64(n)-1) == 0):
		return ""
	case ok:
		return "a power of two"
	case hasAbove && hasMost && math.IsInf(parse(t, "max", most), 1):
		return "more than " + shown(t, above) + ", or " + most
	case hasAbove && hasMost:
		return "more than " + shown(t, above) + " and at most " + shown(t, most)
	case hasAbove:
		return "more than " + shown(t, above)
	case hasLeast && hasMost:
		return shown(t, least) + " to " + shown(t, most)
	case hasMost:
		return "at most " + shown(t, most)
	default:
		return "at least " + shown(t, least)
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
func shown(t reflect.Type, text string) string {
	if strings.Contains(text, "<<") {
		return strconv.FormatInt(int64(parse(t, "bound", text)), 10)
	}
	return text
}

var duration = reflect.TypeFor[time.Duration]()

// parse returns the number in text, the value of the tag named tag of a field of type t: 64<<10, 0.9,
// or 10s for a duration. It panics if text is no number. Integers in tags are below 1<<53, so a float64
// holds them exactly.
func parse(t reflect.Type, tag, text string) float64 {
	if to, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler); ok {
		if to.UnmarshalText([]byte(text)) == nil {
			return number(reflect.ValueOf(to).Elem())
		}
	} else if t == duration {
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
	panic(fmt.Sprintf("bounds: a field of type %v has the tag %s:%q, want a number", t, tag, text))
}
