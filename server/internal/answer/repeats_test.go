package answer

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/grammar/toolcall/parse"
)

// TestRepeats: an output ends at a call that equals the one before, however its text is split. Other calls are given.
func TestRepeats(t *testing.T) {
	call := func(name, arguments string) string {
		return `<tool_call>{"name": "` + name + `", "arguments": ` + arguments + `}</tool_call>`
	}
	a, b, long := call("a", `{"x":1}`), call("b", `{"x":1}`), call("a", `{"x":12}`)
	for _, tc := range []struct {
		text, want string
		ended      bool
	}{
		{"hello", "hello", false},
		{a, `[a{"x":1}]`, false},
		{a + b + a, `[a{"x":1}][b{"x":1}][a{"x":1}]`, false},
		{a + long, `[a{"x":1}][a{"x":12}]`, false},
		{long + a, `[a{"x":12}][a{"x":1}]`, false},
		{"so " + a + "\n" + a + " and " + b, `so[a{"x":1}]`, true},
		{a + b + b + a, `[a{"x":1}][b{"x":1}]`, true},
		{a + " then " + a, `[a{"x":1}] then`, true},
		{a + "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\":1", `[a{"x":1}][a{"x":1]`, false}, // cut: it may have gone on otherwise
	} {
		for size := 1; size <= len(tc.text); size++ {
			o := (&Answer{calls: conversation.AnyCalls, greedy: true, form: toolcall.Hermes}).newParser()
			var got strings.Builder
			open := false
			give := func(events []parse.Event) {
				for _, e := range events {
					if open && e.Kind != parse.Arguments {
						got.WriteString("]")
						open = false
					}
					if e.Kind == parse.Call {
						got.WriteString("[")
						open = true
					}
					got.WriteString(e.Text)
				}
			}
			for rest := tc.text; rest != ""; {
				n := min(size, len(rest))
				give(o.next(rest[:n], false))
				rest = rest[n:]
			}
			give(o.next("", true))
			if open {
				got.WriteString("]")
			}
			if got.String() != tc.want || o.repeated() != tc.ended {
				t.Errorf("%q in pieces of %d: %q, %v, want %q", tc.text, size, got.String(), o.repeated(), tc.want)
			}
		}
		o := (&Answer{calls: conversation.AnyCalls, form: toolcall.Hermes}).newParser()
		if o.next(tc.text, true); o.repeated() {
			t.Errorf("%q: ended above temperature 0", tc.text)
		}
	}
}
