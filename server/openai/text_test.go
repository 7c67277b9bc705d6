package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
)

// jsonOf is what encoding/json writes, without the escapes for HTML.
func jsonOf(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "light", "\x00\x1f\x7f\"\\\b\f\n\r\t", "<&>", "\u2028\u2029\u202a", "\xff\xe4\xb8", "\xed\xa0\x80", "光 🜁 \ufffd", "a\xf0\x9f\x98b"} {
		f.Add(s, "x", float32(-0.5))
	}
	for _, v := range []float32{0, 1, -1e-7, -9.5e-10, 1e21, -3.4e38, 1e-45, float32(math.Copysign(0, -1)), 123456.78} {
		f.Add("a", "b", v)
	}
	f.Fuzz(func(t *testing.T, a, b string, v float32) {
		if got, want := string(appendString(nil, a)), jsonOf(t, a); got != want {
			t.Errorf("%q is written %s, want %s", a, got, want)
		}
		if got, want := string(appendTwo(nil, a, b)), string(appendString(nil, a)); len(want) > 2 && got != want[:len(want)-1]+string(appendString(nil, b))[1:] {
			t.Errorf("%q and %q are written %s", a, b, got)
		}
		if raw := []byte(`"` + a + `"`); json.Valid(raw) {
			var want string
			if err := json.Unmarshal(raw, &want); err != nil || unquote(raw) != want {
				t.Errorf("%s is read %q, want %q, %v", raw, unquote(raw), want, err)
			}
		}
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			if got, want := string(appendLogprob(nil, v)), jsonOf(t, v); got != want {
				t.Errorf("%g is written %s, want %s", v, got, want)
			}
		}
	})
}

func TestNoLogarithm(t *testing.T) {
	for _, v := range []float32{float32(math.Inf(-1)), nan} {
		if got := string(appendLogprob(nil, v)); got != "-9999" {
			t.Errorf("%g is written %s", v, got)
		}
	}
}
