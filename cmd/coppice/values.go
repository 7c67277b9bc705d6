package main

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/wording"
	"github.com/coppice-llm/coppice/kv"
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
		kong.TypeMapper(reflect.TypeFor[kv.DType](), value("data type of keys and values; want "+either(texts(cpu.KVTypes(), kv.DType.String)), func(text string, to reflect.Value) error {
			at := slices.Index(texts(cpu.KVTypes(), kv.DType.String), text)
			if at < 0 {
				return strconv.ErrSyntax
			}
			to.Set(reflect.ValueOf(cpu.KVTypes()[at]))
			return nil
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

// bounded returns an error that lists all flags whose values are outside the bounds in their tags;
// see bounds.Check. It also refuses a zero that is outside of the bounds: a library would take it for
// its default. Flags without a default have bounds only if they are given.
func bounded(k *kong.Context) error {
	var faults bounds.Faults
	for _, f := range k.Flags() {
		tag := func(key string) (string, bool) { return f.Tag.Get(key), f.Tag.Has(key) }
		check := func(v reflect.Value) {
			want := bounds.Outside(tag, v)
			faults.If(want != "", "--%s is %v, want %s", f.Name, v, want)
		}
		switch {
		case !f.Set:
		case f.Target.Kind() == reflect.Slice:
			for i := range f.Target.Len() {
				check(f.Target.Index(i))
			}
		default:
			check(reflect.Indirect(f.Target))
		}
	}
	return faults.Err()
}

// noValue matches kong's message about a flag without a value.
var noValue = regexp.MustCompile(`^(--[a-z0-9-]+): (?:expected .* value but got "EOL" .*|missing value, .*)$`)

// looksLikeFlag matches kong's message about a value that begins with "-".
var looksLikeFlag = regexp.MustCompile(`^(--[a-z0-9-]+): expected .* value but got "(-[^"]*)" .*$`)

// notChoice matches kong's message about a value that is not among those of an enum tag.
var notChoice = regexp.MustCompile(`^(--[a-z0-9-]+) must be one of "(.*)" but got (".*")$`)

// noArgument matches kong's message about a command without an argument.
var noArgument = regexp.MustCompile(`^expected "<(.*)>"$`)

// sentence returns the message about a bad command line.
func sentence(err error) string {
	text := noValue.ReplaceAllString(withoutName(err), "$1 needs a value")
	text = looksLikeFlag.ReplaceAllString(text, `$1: "$2" looks like a flag; if it is the value, write $1=$2`)
	if m := notChoice.FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("%s: %s is not a choice; want %s", m[1], m[3], either(strings.Split(m[2], `","`)))
	}
	return noArgument.ReplaceAllString(text, "give a $1 as argument")
}

// either lists names as "a, b or c".
func either(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// tierNames replaces the names of the tiers' stores by their flags.
var tierNames = strings.NewReplacer("Tiers: hostmem: ", "--kv-host: ", "Tiers: diskmem: ", "--kv-disk: ", "Tiers: dirmem: ", "--kv-share: ")

// withoutName returns an error's text for users: without package names, and with the flags of
// tiers. The program prints "coppice: " before every error.
func withoutName(err error) string {
	return tierNames.Replace(wording.Bare(err.Error()))
}

// unread returns the error for a file, named by a flag, that cannot be read.
func unread(flag, path string, err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		err = at.Err // without the path, which the message already has
	}
	return fmt.Errorf("%s %s: %w", flag, path, err)
}
