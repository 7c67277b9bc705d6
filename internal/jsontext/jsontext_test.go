package jsontext

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
)

// jsonOf returns the output of encoding/json without HTML escapes.
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

func TestAppendInt(t *testing.T) {
	for _, got := range []string{
		string(AppendInt(nil, math.MinInt64)) + string(AppendInt(nil, int64(-1))) + string(AppendInt(nil, 0)),
		string(AppendInt(nil, uint64(math.MaxUint64))) + string(AppendInt(nil, uint32(math.MaxUint32))),
	} {
		if got != "-9223372036854775808-10" && got != "184467440737095516154294967295" {
			t.Error(got)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "light", "\x00\x1f\x7f\"\\\b\f\n\r\t", "<&>", "\u2028\u2029\u202a", "\xff\xe4\xb8", "\xed\xa0\x80", "光 🜁 \ufffd", "a\xf0\x9f\x98b"} {
		f.Add(s, "x", float32(-0.5))
	}
	for _, v := range []float32{0, 1, -1e-7, -9.5e-10, 1e21, -3.4e38, 1e-45, float32(math.Copysign(0, -1)), 123456.78} {
		f.Add("a", "b", v)
	}
	f.Fuzz(func(t *testing.T, a, b string, v float32) {
		if got, want := string(AppendString(nil, a)), jsonOf(t, a); got != want {
			t.Errorf("%q is written %s, want %s", a, got, want)
		}
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			if got, want := string(AppendFloat(nil, v)), jsonOf(t, v); got != want {
				t.Errorf("%g is written %s, want %s", v, got, want)
			}
		}
	})
}
