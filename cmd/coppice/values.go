package main

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// valueMappers parse flags of types without UnmarshalText, so that a bad value gets an error
// message of this program rather than kong's.
func valueMappers() []kong.Option {
	integer := value("whole number", func(text string, to reflect.Value) error {
		n, err := strconv.ParseInt(text, 0, 64)
		to.SetInt(n)
		return err
	})
	return []kong.Option{
		kong.KindMapper(reflect.Int, integer),
		kong.KindMapper(reflect.Int64, integer),
		kong.KindMapper(reflect.Uint64, value("whole number of 0 or more", func(text string, to reflect.Value) error {
			n, err := strconv.ParseUint(text, 0, 64)
			to.SetUint(n)
			return err
		})),
		kong.KindMapper(reflect.Float64, value("number", func(text string, to reflect.Value) error {
			v, err := strconv.ParseFloat(text, 64)
			to.SetFloat(v)
			return err
		})),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), value("duration; want one like 50ms, 30s or 10m", func(text string, to reflect.Value) error {
			d, err := time.ParseDuration(text)
			to.SetInt(int64(d))
			return err
		})),
	}
}

// value makes a mapper from a function that parses text. what names the expected value in
// error messages.
func value(what string, read func(text string, to reflect.Value) error) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		token, err := ctx.Scan.PopValue(what)
		if err != nil {
			return err
		}
		text := fmt.Sprint(token.Value)
		if read(text, target) != nil {
			return fmt.Errorf("%.80q is not a %s", text, what)
		}
		return nil
	}
}

// bounded returns an error that lists all flags whose values are outside the bounds in their tags
// min and max. A bound is written as a value of the flag. bounded also refuses a zero that is
// outside of the bounds: a library would take it for its default.
func bounded(k *kong.Context) error {
	var errs []error
	for _, f := range k.Flags() {
		v, lo, hi := f.Target, f.Tag.Get("min"), f.Tag.Get("max")
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		switch {
		case lo == "" || !v.IsValid():
		case hi != "" && !(compare(v, lo) >= 0 && compare(v, hi) <= 0):
			errs = append(errs, fmt.Errorf("--%s is %v, want %s to %s", f.Name, v, lo, hi))
		case hi == "" && !(compare(v, lo) >= 0):
			errs = append(errs, fmt.Errorf("--%s is %v, want at least %s", f.Name, v, lo))
		}
	}
	return errors.Join(errs...)
}

// compare compares a flag's value with a bound in text form, with the result of cmp.Compare; NaN
// is below everything. It panics if text is not a value of the flag's type.
func compare(v reflect.Value, text string) int {
	bound := reflect.New(v.Type())
	var err error
	switch to := bound.Interface().(type) {
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(text))
	case *time.Duration:
		*to, err = time.ParseDuration(text)
	case *float64:
		if *to, err = strconv.ParseFloat(text, 64); err == nil {
			return cmp.Compare(v.Float(), *to)
		}
	case *int:
		*to, err = strconv.Atoi(text)
	}
	if err != nil {
		panic(fmt.Sprintf("a bound %q of type %v: %v", text, v.Type(), err))
	}
	return cmp.Compare(v.Int(), bound.Elem().Int())
}

// noValue matches kong's message about a flag without a value.
var noValue = regexp.MustCompile(`^(--[a-z0-9-]+): (?:expected .* value but got "EOL" .*|missing value, .*)$`)

// looksLikeFlag matches kong's message about a value that begins with "-".
var looksLikeFlag = regexp.MustCompile(`^(--[a-z0-9-]+): expected .* value but got "(-[^"]*)" .*$`)

// innerName matches the name of an inner package in an error, which means nothing to users.
var innerName = regexp.MustCompile(`^(--[a-z0-9-]+: |)(?:coppice|bench|load|cuda|cudrv|gpucheck|hub|tokenizer|scheduler|tiering|radixcache|router|kvindex|model|chat|server): `)

// noArgument matches kong's message about a command without an argument.
var noArgument = regexp.MustCompile(`^expected "<(.*)>"$`)

// sentence returns the message about a bad command line.
func sentence(err error) string {
	text := noValue.ReplaceAllString(withoutName(err), "$1 needs a value")
	text = looksLikeFlag.ReplaceAllString(text, `$1: "$2" looks like a flag; if it is the value, write $1=$2`)
	return noArgument.ReplaceAllString(text, "give a $1 as argument")
}

// tierNames replaces the names of the tiers' stores by their flags.
var tierNames = strings.NewReplacer("Tiers: hostmem: ", "--kv-host: ", "Tiers: diskmem: ", "--kv-disk: ", "Tiers: dirmem: ", "--kv-share: ")

// withoutName returns an error's text for users: without package names, and with the flags of
// tiers. The program prints "coppice: " before every error.
func withoutName(err error) string {
	return tierNames.Replace(innerName.ReplaceAllString(err.Error(), "$1"))
}

// unread returns the error for a file, named by a flag, that cannot be read.
func unread(flag, path string, err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		err = at.Err // without the path, which the message already has
	}
	return fmt.Errorf("%s %s: %w", flag, path, err)
}
