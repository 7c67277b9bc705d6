package openai

import (
	"encoding/json"
	"strings"
	"testing"
)

// longestOf returns what a Meter finds in a body that arrives in parts of that many bytes.
func longestOf(body string, part int) (longest int) {
	var m Meter
	for len(body) > 0 {
		n := min(part, len(body))
		longest = max(longest, m.Longest([]byte(body[:n])))
		body = body[n:]
	}
	return longest
}

// TestMeter: the texts of the prompt are measured, and no others, in parts of any size.
func TestMeter(t *testing.T) {
	long := strings.Repeat("x", 50)
	for body, want := range map[string]int{
		`{"prompt":"` + long + `","user":"a"}`:                         50,
		`{"user":"` + long + `","prompt":"abc"}`:                       3,
		`{"prompt":["ab","` + long + `","c"],"stop":["` + long + `"]}`: 50,
		`{"a":{"prompt":"` + long + `"},"prompt":"ab"}`:                2,
		`{"a":[{"prompt":"` + long + `"}],"prompt" : "abcd" }`:         4,
		`{"a":"prompt","b":"` + long + `"}`:                            0,
		`{"prompts":"` + long + `","promp":"` + long + `"}`:            0,
		`{"\nprompt":"` + long + `"}`:                                  0,
		`{"prompt":"a\"b\\\u0041\n"}`:                                  6,
		`{"prompt":"\ud83d\ude00"}`:                                    2,
		`{"prompt":[1,2,3]}`:                                           0,
		`{"prompt":"` + long:                                           50,
		``:                                                             0,
	} {
		for _, part := range []int{1, 2, 3, 7, 1000} {
			if n := longestOf(body, part); n != want {
				t.Errorf("%s in parts of %d: %d bytes, want %d", body, part, n, want)
			}
		}
	}
}

// FuzzMeter: a Meter never finds more text than the parser reads, so it refuses nothing that the parser
// takes.
func FuzzMeter(f *testing.F) {
	for _, body := range []string{`{"prompt":"a\u0041\\\"b","user":"c"}`, `{"prompt":["a",["b"]],"x":{"prompt":"cc"}}`, `{"prompt":"\ud800"}`, `{"prompt":"a","prompt":"bb"}`} {
		f.Add(body, 3)
	}
	f.Fuzz(func(t *testing.T, body string, part int) {
		n := longestOf(body, min(max(part, 1), 64))
		if !json.Valid([]byte(body)) {
			return
		}
		ask, err := DecodeCompletion([]byte(body), Options{UnknownFields: IgnoreUnknown})
		if err != nil || strings.Count(body, promptName) > 1 { // of two prompts the later one counts
			return
		}
		longest := 0
		for _, p := range ask.Prompts {
			longest = max(longest, len(p.Text))
		}
		if n > longest {
			t.Errorf("%d bytes in %q, the parser reads %d", n, body, longest)
		}
	})
}
