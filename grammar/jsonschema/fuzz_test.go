package jsonschema

import (
	"encoding/json"
	"errors"
	"math/rand"
	"testing"
	"unicode/utf8"
)

// FuzzSchema checks that any bytes give an *Error, or rules that pass Validate and match only
// JSON.
func FuzzSchema(f *testing.F) {
	for _, c := range readGolden(f).Cases {
		f.Add([]byte(c.Schema), int64(1))
	}
	for _, s := range append(emitted, exact...) {
		f.Add([]byte(s), int64(2))
	}
	f.Fuzz(func(t *testing.T, schema []byte, seed int64) {
		cfg := Config{Compact: seed%2 == 0, AllowExtra: seed%3 == 0, MaxSize: 3000}
		rules, err := Rules(schema, cfg)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Msg == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		size := 0
		for _, r := range rules {
			size += cost(r, 1<<30)
		}
		if size > cfg.MaxSize {
			t.Fatalf("%d expressions", size)
		}
		if err := rules.Validate(); err != nil {
			t.Fatal(err)
		}
		g := newEmitter(rules, rand.New(rand.NewSource(seed)))
		if g.least[0] > 1<<16 {
			return
		}
		for range 3 {
			if text := g.text(100); !utf8.ValidString(text) || !json.Valid([]byte(text)) {
				t.Fatalf("writes %q", text)
			}
		}
	})
}

// FuzzPattern checks that any pattern gives an error, or an expression of JSON strings.
func FuzzPattern(f *testing.F) {
	f.Add(`^[a-z]+(\.\d{2,3})?$`, int64(1))
	f.Fuzz(func(t *testing.T, source string, seed int64) {
		if len(source) > 1000 {
			return
		}
		schema, err := json.Marshal(map[string]string{"type": "string", "pattern": source})
		if err != nil {
			t.Fatal(err)
		}
		rules, err := Rules(schema, Config{})
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			return
		}
		g := newEmitter(rules, rand.New(rand.NewSource(seed)))
		if g.least[0] > 1<<16 {
			return
		}
		if text := g.text(100); !json.Valid([]byte(text)) || !matches(rules, text) {
			t.Fatalf("writes %q", text)
		}
	})
}
