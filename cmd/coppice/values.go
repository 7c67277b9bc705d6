package main

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// valueMappers read the values of flags whose types have no UnmarshalText, so that a wrong
// one gets a sentence of ours.
func valueMappers() []kong.Option {
	integer := value("whole number", func(text string, to reflect.Value) error {
		n, err := strconv.ParseInt(text, 0, 64)
		to.SetInt(n)
		return err
	})
	return []kong.Option{
		kong.KindMapper(reflect.Int, integer),
		kong.KindMapper(reflect.Int64, integer),
		kong.KindMapper(reflect.Uint64, value("whole number, 0 or more", func(text string, to reflect.Value) error {
			n, err := strconv.ParseUint(text, 0, 64)
			to.SetUint(n)
			return err
		})),
		kong.KindMapper(reflect.Float64, value("number", func(text string, to reflect.Value) error {
			v, err := strconv.ParseFloat(text, 64)
			to.SetFloat(v)
			return err
		})),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), value("duration, want one like 50ms, 30s or 10m", func(text string, to reflect.Value) error {
			d, err := time.ParseDuration(text)
			to.SetInt(int64(d))
			return err
		})),
	}
}

// value makes a mapper of a function that reads a text, of which what says what it should be.
func value(what string, read func(text string, to reflect.Value) error) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		token, err := ctx.Scan.PopValue(what)
		if err != nil {
			return err
		}
		text := fmt.Sprint(token.Value)
		if read(text, target) != nil {
			return fmt.Errorf("%.80q is no %s", text, what)
		}
		return nil
	}
}

// noValue matches what kong says of a flag without its value.
var noValue = regexp.MustCompile(`^(--[a-z0-9-]+): (?:expected .* value but got "EOL" .*|missing value, .*)$`)

// sentence is what is wrong with a command line.
func sentence(err error) string {
	return noValue.ReplaceAllString(err.Error(), "$1 needs a value")
}

// unread is the error of a file that a flag names and that can't be read.
func unread(flag, path string, err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		err = at.Err // which has the path again
	}
	return fmt.Errorf("%s %s: %w", flag, path, err)
}
