package schedtest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Arg is one argument of a command: key, key=value or key=(value, value).
type Arg struct {
	Key  string
	Vals []string
}

// args returns arguments by name and keeps the first error. An argument that no method has read
// is an error, too.
type args struct {
	list []Arg
	used map[string]bool
	err  error
}

func newArgs(list []Arg) *args { return &args{list: list, used: map[string]bool{}} }

func (a *args) find(key string) (*Arg, bool) {
	a.used[key] = true
	for i := range a.list {
		if a.list[i].Key == key {
			return &a.list[i], true
		}
	}
	return nil, false
}

func (a *args) fail(format string, values ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, values...)
	}
}

// has reports whether a flag is given.
func (a *args) has(key string) bool {
	_, ok := a.find(key)
	return ok
}

func (a *args) text(key, otherwise string) string {
	arg, ok := a.find(key)
	if !ok {
		return otherwise
	}
	return strings.Join(arg.Vals, ",")
}

func (a *args) values(key string) []string {
	if arg, ok := a.find(key); ok {
		return arg.Vals
	}
	return nil
}

func (a *args) number(key string, otherwise int) int {
	arg, ok := a.find(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(strings.Join(arg.Vals, ","))
	if err != nil {
		a.fail("%s: want a number", key)
	}
	return n
}

func (a *args) fraction(key string) float32 {
	arg, ok := a.find(key)
	if !ok {
		return 0
	}
	x, err := strconv.ParseFloat(strings.Join(arg.Vals, ","), 32)
	if err != nil {
		a.fail("%s: want a number", key)
	}
	return float32(x)
}

func (a *args) duration(key string) time.Duration {
	arg, ok := a.find(key)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(strings.Join(arg.Vals, ","))
	if err != nil {
		a.fail("%s: want a time like 5ms", key)
	}
	return d
}

// first returns the first argument without a value, such as the 3 of "step 3".
func (a *args) first(otherwise int) int {
	for i := range a.list {
		if n, err := strconv.Atoi(a.list[i].Key); err == nil && len(a.list[i].Vals) == 0 {
			a.used[a.list[i].Key] = true
			return n
		}
	}
	return otherwise
}

// done returns the first error.
func (a *args) done() error {
	for i := range a.list {
		if key := a.list[i].Key; !a.used[key] {
			a.fail("%s: there is no such argument", key)
		}
	}
	return a.err
}

// parseTick parses the time of "tick 5ms".
func parseTick(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("tick %q: want a time like 5ms", text)
	}
	return d, nil
}
