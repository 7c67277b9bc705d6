package card

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestThereAndBack(t *testing.T) {
	c := &Card{
		Name: "worker-1", URL: "http://10.0.0.1:8080", Models: []string{"llama"}, Pool: "fast.1", Keyed: true, BlockTokens: 16, PoolTokens: 1 << 20,
		StepTokens: 2048, MaxRunning: 64, MaxModelTokens: 8192, Epoch: 1 << 63, ZMQ: &ZMQ{Port: 5557, ReplayPort: 5558, Topic: "kv@"},
		NATS: &NATS{Prefix: "p"}, Profile: &Profile{Step: 0.01},
	}
	got, err := Parse(c.Append(nil))
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Fatalf("%+v, %v, want %+v", got, err, c)
	}
	if c.ID() != got.ID() || c.ID() == IDOf("worker-2") || c.ID() == 0 {
		t.Fatal("the number is not the name's")
	}
}

func TestRefused(t *testing.T) {
	for want, c := range map[string]Card{
		"name is empty":              {},
		"name is \"a.b\"":            {Name: "a.b"},
		"name has":                   {Name: strings.Repeat("x", maxName+1)},
		"pool's name has 129":        {Name: "a", Pool: strings.Repeat("p", maxName+1)},
		"pool's name is \"a b\"":     {Name: "a", Pool: "a b"},
		"pool's name is \"é\"":       {Name: "a", Pool: "é"},
		"url is":                     {Name: "a", URL: "ftp://x"},
		"block_tokens is 0":          {Name: "a", NATS: &NATS{}},
		"zmq: port is 0":             {Name: "a", BlockTokens: 16, ZMQ: &ZMQ{}},
		"pool_tokens is -1":          {Name: "a", PoolTokens: -1},
		"profile: row is NaN":        {Name: "a", Profile: &Profile{Row: math.NaN()}},
		"models has 257 names, want": {Name: "a", Models: make([]string, 257)},
	} {
		err := c.Validate()
		if err == nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, text := range []string{"", "{", `{"name":"a"} x`, `{"name":5}`, strings.Repeat(" ", MaxBytes+1)} {
		if c, err := Parse([]byte(text)); err == nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q gives %v, %v", text, c, err)
		}
	}
	if _, err := Parse([]byte(`{"name":"a","models":null,"of a later version":1}`)); err != nil {
		t.Error(err)
	}
}

func TestNameOf(t *testing.T) {
	for text, want := range map[string]string{
		"host.example.com-80": "host-example-com-80", `a b/c\d>*ä`: "a-b-c-d---", "[::1]:8080/v": "---1--8080-v", strings.Repeat("x", 200): strings.Repeat("x", maxName),
	} {
		if got := NameOf(text); got != want || CheckName(got) != nil {
			t.Errorf("%q is called %q, want %q", text, got, want)
		}
	}
}
