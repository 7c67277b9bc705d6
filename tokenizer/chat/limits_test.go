package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// small are limits that hostile templates soon reach.
var small = Limits{Steps: 200_000, OutputBytes: 1 << 20}

// hostile templates use too much of some resource.
var hostile = map[string]string{
	"nested loops":      `{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}`,
	"recursion":         `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`,
	"mutual recursion":  `{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}`,
	"branching":         `{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}`,
	"doubling text":     `{% set ns = namespace(s='x') %}{% for i in range(999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`,
	"doubling lists":    `{% set ns = namespace(s=[1]) %}{% for i in range(999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`,
	"repeated text":     `{{ 'x' * 999999999999 }}`,
	"repeated list":     `{{ [0] * 999999999999 }}`,
	"wide product":      `{{ 'xxxxxxxx' * 9223372036854775807 }}`,
	"replace":           `{{ ('a' * 100000).replace('a', 'b' * 100000) }}`,
	"join":              `{{ (['a'] * 50000) | join('b' * 100000) }}`,
	"indent":            `{{ ('a\n' * 10000) | indent(100000) }}`,
	"wide indent":       `{{ 'a\nb' | indent(9223372036854775807) }}`,
	"json indent":       `{{ [[[1]]] | tojson(indent=999999999) }}`,
	"deep list":         `{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}`,
	"deep json":         `{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s | tojson }}`,
	"wide list shared":  `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}`,
	"equal shared":      `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}`,
	"sort":              `{% for i in range(999) %}{% set x = range(99999) | list | sort %}{% endfor %}`,
	"map of map":        `{% for i in range(9999) %}{% set x = range(9999) | map('string') | list %}{% endfor %}`,
	"slices":            `{% for i in range(9999) %}{% set x = range(9999)[::-1] %}{% endfor %}`,
	"in text":           `{% set s = 'a' * 999999 %}{% for i in range(99999) %}{% set x = 'b' in s %}{% endfor %}`,
	"characters":        `{% set s = 'a' * 999999 %}{% for i in range(99999) %}{% set x = s[99999] %}{% endfor %}`,
	"splitting":         `{% set s = 'a ' * 999999 %}{% for i in range(99999) %}{% set x = s.split() %}{% endfor %}`,
	"strip by a set":    `{% set s = 'a' * 300000 %}{% for i in range(99999) %}{% set x = s.strip('b' * 300000) %}{% endfor %}`,
	"long keys":         `{% set s = 'a' * 300000 %}{% for i in range(99999) %}{% set x = {s: 1}[s] %}{% endfor %}`,
	"copied dicts":      `{% set ns = namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, a=1) %}{% set x = 'b' * 100 %}{% set y = dict(ns.d) | items | list %}{% endfor %}`,
	"much output":       `{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}`,
	"output in capture": `{% set x %}{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}`,
}

func TestHostileTemplatesEnd(t *testing.T) {
	for name, text := range hostile {
		p, err := NewNamed(map[string]string{"default": text}, nil, small)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := p.Render(nil, Options{})
		if !errors.Is(err, ErrLimit) && !(errors.Is(err, ErrRender) && strings.Contains(err.Error(), "nested over")) {
			t.Errorf("%s: %d bytes, error %v; want a limit", name, len(out), err)
		}
	}
}

// Every nested construct is tried at the limit of depth and far above it.
func TestDeepTemplates(t *testing.T) {
	for name, of := range map[string]func(n int) string{
		"parentheses": func(n int) string { return "{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}" },
		"lists":       func(n int) string { return "{{ " + strings.Repeat("[", n) + strings.Repeat("]", n) + " }}" },
		"negations":   func(n int) string { return "{{ " + strings.Repeat("not ", n) + "1 }}" },
		"signs":       func(n int) string { return "{{ " + strings.Repeat("- ", n) + "1 }}" },
		"sums":        func(n int) string { return "{{ 1" + strings.Repeat(" + 1", n) + " }}" },
		"ors":         func(n int) string { return "{{ 1" + strings.Repeat(" or 1", n) + " }}" },
		"attributes":  func(n int) string { return "{{ a" + strings.Repeat(".a", n) + " }}" },
		"filters":     func(n int) string { return "{{ 1" + strings.Repeat(" | string", n) + " }}" },
		"conditions":  func(n int) string { return "{{ 1" + strings.Repeat(" if 1 else 1", n) + " }}" },
		"chains":      func(n int) string { return "{{ 1" + strings.Repeat(" if 1", n) + " }}" },
		"blocks":      func(n int) string { return strings.Repeat("{% if 1 %}", n) + strings.Repeat("{% endif %}", n) },
		"targets": func(n int) string {
			return "{% set " + strings.Repeat("(", n) + "a" + strings.Repeat(")", n) + " = 1 %}"
		},
	} {
		if _, err := newTemplate(of(20), "", ""); err != nil {
			t.Errorf("20 %s: %v", name, err)
		}
		for _, n := range []int{maxDepth + 1, 10_000} {
			if _, err := NewNamed(map[string]string{"x": of(n)}, nil, Limits{TemplateBytes: 4 << 20}); !errors.Is(err, ErrLimit) {
				t.Errorf("%d %s: %.200v, want a limit", n, name, err)
			}
		}
	}
	deep := json.RawMessage(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000))
	if _, err := renderWith("x", map[string]json.RawMessage{"a": deep}); !errors.Is(err, ErrRender) {
		t.Errorf("deep JSON: %.200v", err)
	}
}

func TestLimitsAtTheirEdge(t *testing.T) {
	render := func(text string, l Limits) error {
		x, err := NewNamed(map[string]string{"default": text}, nil, l)
		if err == nil {
			_, err = x.Render(nil, Options{})
		}
		return err
	}
	for _, tc := range []struct {
		text string
		l    Limits
		ok   bool
	}{
		{"12345678", Limits{OutputBytes: 8}, true}, {"123456789", Limits{OutputBytes: 8}, false}, {"1234567", Limits{OutputBytes: 8}, true},
		{"12345678", Limits{TemplateBytes: 8}, true}, {"123456789", Limits{TemplateBytes: 8}, false}, {"1234567", Limits{TemplateBytes: 8}, true},
		{"x", Limits{Steps: 2}, true}, {"x", Limits{Steps: 1}, false}, {"x", Limits{Steps: 3}, true},
	} {
		if err := render(tc.text, tc.l); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrLimit) {
			t.Errorf("%q under %+v: %v", tc.text, tc.l, err)
		}
	}
	calls := `{% macro f(n) %}{% if n > 1 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(MANY) }}`
	for n, ok := range map[int]bool{maxCalls - 1: true, maxCalls: true, maxCalls + 1: false} {
		if err := render(strings.Replace(calls, "MANY", fmt.Sprint(n), 1), Limits{}); (err == nil) != ok {
			t.Errorf("%d calls: %v", n, err)
		}
	}
	for n, ok := range map[int]bool{maxRange - 1: true, maxRange: true, maxRange + 1: false} {
		if err := render(fmt.Sprintf("{{ range(%d) | length }}", n), Limits{}); (err == nil) != ok {
			t.Errorf("range(%d): %v", n, err)
		}
	}
}

// A caller's number of many digits costs steps like text, however often a template writes it.
func TestWideNumbersCostSteps(t *testing.T) {
	few := Limits{Steps: small.Steps, OutputBytes: 1 << 30}
	for _, source := range []string{`{{ [x] * 2000 }}`, `{{ ([x] * 2000) | tojson }}`} {
		chat, err := NewNamed(map[string]string{defaultName: source}, nil, few)
		if err != nil {
			t.Fatal(err)
		}
		x := json.RawMessage(strings.Repeat("9", 100_000))
		_, err = chat.Render(nil, Options{Variables: map[string]json.RawMessage{"x": x}})
		if !errors.Is(err, ErrLimit) || strings.Contains(err.Error(), "OutputBytes") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

func TestLimitsAreValidated(t *testing.T) {
	l := Limits{TemplateBytes: -1, Steps: 2_000_000_000 + 1, OutputBytes: 1<<30 + 1}
	err := l.Validate()
	for _, name := range []string{"TemplateBytes", "Steps", "OutputBytes"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if _, err := NewNamed(map[string]string{"a": ""}, nil, l); err == nil {
		t.Error("NewNamed takes them")
	}
	for _, l := range []Limits{{}, {16 << 20, 2_000_000_000, 1 << 30}, Limits{}.WithDefaults()} {
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// No template may panic, run forever, or print anything but its inputs.
func FuzzTemplate(f *testing.F) {
	g := readGolden(f)
	for _, c := range g.Singles {
		f.Add(c.Template)
	}
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parse(text, Limits{TemplateBytes: 5000}.WithDefaults())
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrLimit) {
				t.Fatalf("%q: the error %v is of no kind", text, err)
			}
			return
		}
		o := Options{Now: goldenNow, Variables: g.Variables}
		out, err := p.render(Limits{Steps: 20_000, OutputBytes: 1 << 20}, &o, 0, func(_ *run, globals map[string]any) error { return o.variables(globals, nil, false) })
		if err != nil && !errors.Is(err, ErrRender) && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrLimit) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("%q: the error %v is of no kind", text, err)
		}
		if len(out) > 400_000 {
			t.Fatalf("%q: %d bytes by 20,000 steps", text, len(out))
		}
	})
}
