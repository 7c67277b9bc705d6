package chat

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
)

var errGone = errors.New("the client is gone")

// TestChargeBoundsMemory: what hostile templates allocate stays within a small multiple of what they
// charge before, and no text is longer than a prompt may be.
func TestChargeBoundsMemory(t *testing.T) {
	texts := map[string]string{
		"tojson 32 times":    `{{ x` + strings.Repeat(` | tojson`, 32) + ` }}`,
		"ascii":              `{{ ('é' * 400000) | tojson(ensure_ascii=true) }}`,
		"control characters": `{{ ('\x01' * 2000000) | tojson }}`,
		"repr":               `{{ ['\x01' * 2000000] }}`,
		"keys":               `{{ {'"' * 3000000: 1} | tojson }}`,
		"separators":         `{{ range(2000) | list | tojson(separators=['x' * 100000, ':']) }}`,
		"escape":             `{{ ('"' * 3000000) | e | e | e | e | e }}`,
		"upper":              `{{ ('ŉ' * 2000000) | upper }}`,
		"split":              `{% for i in range(9) %}{% set p = ('a ' * 400000).split() %}{% endfor %}`,
		"slice":              `{% for i in range(9) %}{% set p = ('a' * 4000000)[:-1:9999] %}{% endfor %}`,
		"dictionaries":       `{% for i in range(99999) %}{% set p = {'a': {}, 'b': {}} %}{% endfor %}`,
	}
	for name, text := range hostile {
		texts[name] = text
	}
	for name, text := range texts {
		limits := Limits{Steps: 2_000_000, OutputBytes: 4 << 20}
		tmpl, err := NewNamed(map[string]string{"default": text}, nil, limits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		charged := 0
		o := Options{Variables: map[string]json.RawMessage{"x": json.RawMessage(`"\"\\"`)}, Charge: func(n int) error { charged += n; return nil }}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := tmpl.Render(nil, o)
		runtime.ReadMemStats(&after)
		if made := int(after.TotalAlloc - before.TotalAlloc); made > 8*charged+1<<20 || len(out) > limits.OutputBytes || made > 512<<20 {
			t.Errorf("%s: %d bytes allocated in all, %d charged, output of %d: %v", name, made, charged, len(out), err)
		}
	}
}

// TestChargeEnds: an error of Charge ends the rendering at once, with that error.
func TestChargeEnds(t *testing.T) {
	for name, text := range hostile {
		tmpl, err := newTemplate(text, "", "")
		if err != nil {
			t.Fatal(err)
		}
		calls, last := 0, 0
		_, err = tmpl.Render([]Message{{Role: "user", Content: "x"}}, Options{Charge: func(n int) error {
			if last = n; calls == 3 {
				return errGone
			}
			calls++
			return nil
		}})
		if calls == 3 && err != errGone || calls < 3 && err == nil {
			t.Errorf("%s: %v after %d calls, the last for %d bytes", name, err, calls, last)
		}
	}
}

// TestMaxBytes: a prompt may have as many bytes as MaxBytes says, and not one more, with marks or without.
func TestMaxBytes(t *testing.T) {
	tmpl, err := newTemplate(`{% for m in messages %}{% set x %}{{ m.content }}{{ m.content }}{% endset %}{{ m.content }}{% endfor %}`, "", "")
	if err != nil {
		t.Fatal(err)
	}
	c := NewControls([]string{"<"})
	for _, mode := range []ControlMode{Allow, Text} {
		for most, want := range map[int]error{0: nil, 9: ErrTooLong, 10: nil, 11: nil} {
			r, err := tmpl.RenderAs([]Message{{Role: "user", Content: "<<<<<<<<<<"}}, Options{MaxBytes: most}, c, mode)
			if !errors.Is(err, want) || want == nil && len(r.Text) != 10 {
				t.Errorf("%v, at most %d: %q, %v", mode, most, r.Text, err)
			}
		}
	}
}

// TestLongNames: names are bounded, as looking one up is a single step.
func TestLongNames(t *testing.T) {
	for n, want := range map[int]error{maxName: nil, maxName + 1: ErrLimit} {
		if _, err := newTemplate(`{{ `+strings.Repeat("a", n)+` }}`, "", ""); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
