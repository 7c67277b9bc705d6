package jsonbody

import (
	"encoding/json"
	"testing"
)

// FuzzUnescape: strings are decoded as by encoding/json.
func FuzzUnescape(f *testing.F) {
	for _, s := range []string{`a\nb`, `\u00e9\ud83d\ude00`, `\ud83d\u0041`, "\xff\\\"", `\ud83dx`, `\/\\`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := appendUnescaped(nil, raw)
		var want string
		if json.Unmarshal([]byte(`"`+string(raw)+`"`), &want) == nil && string(got) != want {
			t.Errorf("%q becomes %q, want %q", raw, got, want)
		}
	})
}
