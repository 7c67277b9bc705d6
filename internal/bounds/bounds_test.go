package bounds

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

type paint struct {
	Coats int `default:"2" min:"1" max:"1<<3"`
}

type config struct {
	paint
	Name  string        `default:"red"`
	Wait  time.Duration `default:"10s" above:"0s"`
	Share float64       `default:"0.5" above:"0" max:"1"`
	Rooms uint8         `default:"4" pow2:"" min:"1"`
	Least int64         `min:"-1"`
	Most  float64       `max:"2"`
	Speed float64       `default:"1" above:"0" max:"inf"`
	Load  float64       `default:"1" above:"0"`
	Other []int         `min:"1"`
}

func TestFill(t *testing.T) {
	got := Fill(config{Share: 0.25})
	want := config{paint: paint{}, Name: "red", Wait: 10 * time.Second, Share: 0.25, Rooms: 4}
	want.Coats = 2
	if got.paint != want.paint || got.Name != want.Name || got.Wait != want.Wait || got.Share != want.Share || got.Rooms != want.Rooms {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := Check("test", got); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		set  func(*config)
		want string
	}{
		{func(c *config) { c.Coats = 9 }, "test: Coats is 9, want 1 to 8"},
		{func(c *config) { c.Wait = -time.Second }, "test: Wait is -1s, want more than 0s"},
		{func(c *config) { c.Share = math.NaN() }, "test: Share is NaN, want more than 0 and at most 1"},
		{func(c *config) { c.Rooms = 6 }, "test: Rooms is 6, want a power of two"},
		{func(c *config) { c.Rooms = 0 }, "test: Rooms is 0, want at least 1"},
		{func(c *config) { c.Least = -2 }, "test: Least is -2, want at least -1"},
		{func(c *config) { c.Other = []int{4, 0, -1} }, "test: Other is 0, want at least 1\ntest: Other is -1, want at least 1"},
		{func(c *config) { c.Most = math.Inf(-1) }, "test: Most is -Inf, want at most 2"},
		{func(c *config) { c.Speed, c.Load = math.Inf(1), math.Inf(1) }, "test: Load is +Inf, want more than 0"},
		{func(c *config) { c.Speed = math.Inf(-1) }, "test: Speed is -Inf, want more than 0, or inf"},
		{func(c *config) { c.Coats, c.Wait = 0, 0 }, "test: Coats is 0, want 1 to 8\ntest: Wait is 0s, want more than 0s"},
	} {
		cfg := Fill(config{})
		c.set(&cfg)
		if err := Check("test", &cfg); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	cause := errors.New("test: bad")
	if err := CheckAs(cause, config{}); !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "test: bad: Coats is 0") {
		t.Errorf("got %v", err)
	}
}

// size is a number that has a text of its own.
type size int64

func (s *size) UnmarshalText(text []byte) error {
	n, unit, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseInt(n, 10, 64)
	*s = size(v << map[string]int{"KiB": 10, "MiB": 20}[unit])
	return err
}

// TestOutside: a bound may be any text of a value.
func TestOutside(t *testing.T) {
	tags := reflect.StructTag(`min:"1 KiB" max:"2 MiB"`)
	for v, want := range map[size]string{1023: "1 KiB to 2 MiB", 1024: "", 2 << 20: "", 2<<20 + 1: "1 KiB to 2 MiB"} {
		if got := Outside(tags.Lookup, reflect.ValueOf(v)); got != want {
			t.Errorf("%d: %q, want %q", v, got, want)
		}
	}
}

func TestTagsThatAreNoNumbers(t *testing.T) {
	defer func() {
		if r := recover(); r == nil {
			t.Error("no panic")
		}
	}()
	Fill(struct {
		N int `default:"many"`
	}{})
}

func TestFaults(t *testing.T) {
	none := Faults{Owner: "paint: "}
	none.Add(nil, nil)
	none.If(false, "Workers is %d", 8)
	if err := none.Err(); err != nil {
		t.Errorf("no fault: %v", err)
	}
	cause := errors.New("paint: no brush")
	some := Faults{Owner: "paint: "}
	some.Add(nil, cause)
	some.If(true, "Workers is %d", 9)
	if got, want := some.Err(), "paint: no brush\npaint: Workers is 9"; got == nil || got.Error() != want || !errors.Is(got, cause) {
		t.Errorf("got %v, want %s", got, want)
	}
}
