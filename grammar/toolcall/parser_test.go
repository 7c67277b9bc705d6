package toolcall

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// split returns the events of a text that arrives in pieces. cuts has the sizes of the pieces.
// Adjacent events of one kind are joined.
func split(o *Parser, text string, cuts []byte) (all []Event) {
	for last := false; !last; {
		n := len(text)
		if len(cuts) > 0 {
			n, cuts = min(n, int(cuts[0])%24), cuts[1:]
		}
		last = n == len(text)
		all = join(all, o.Next(text[:n], last))
		text = text[n:]
	}
	return all
}

// join appends the events in more to all. Adjacent events of one kind are joined.
func join(all, more []Event) []Event {
	for _, e := range more {
		if k := len(all) - 1; k >= 0 && all[k].Kind == e.Kind && e.Kind != Call {
			all[k].Text += e.Text
		} else {
			all = append(all, e)
		}
	}
	return all
}

// parsers returns one Parser per way to read a text.
func parsers() []*Parser {
	var all []*Parser
	for _, o := range []Options{{}, {Form: Hermes}, {Form: Hermes, One: true}, {Form: Hermes, Exact: true}} {
		all = append(all, NewParser(o))
		o.Reasoning = true
		all = append(all, NewParser(o))
		o.Opened = true
		all = append(all, NewParser(o))
	}
	return all
}

var outputTexts = []string{
	"plain text, with <b>tags</b> and  spaces ",
	"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"}\\\"\"}]}}\n</tool_call>",
	"See:\n\n<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call> \n <tool_call>{\"name\": \"g\"}</tool_call>\n.",
	"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool",
	"<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"} </tool_call>\n\n",
	"<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{'name': 'f'}</tool_call>", "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>",
	"<tool_call>{\"name\": \"f\"} and more</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
	"<<tool_call>{\"a\": tru}<tool_<tool_call>", strings.Repeat(" ", 50) + "<tool_call>" + strings.Repeat("\n", 50) + "{}",
	"<think>\nhm\n</think>\n\nyes", " <think></think>no", "<thin", strings.Repeat(" ", 40) + "<think>a</think>", "<think> a </th ink> " + strings.Repeat(" ", 60) + "</think> b <think>",
	"<think>one</think>\n<tool_call>{\"name\":\"f\"}</tool_call>", "</think>\n<tool_call>",
}

// TestHermes covers valid, broken and truncated calls.
func TestHermes(t *testing.T) {
	var b strings.Builder
	for _, text := range outputTexts[:12] {
		o := &Parser{calls: &calls{}}
		fmt.Fprintf(&b, "%q\n", text)
		for _, e := range split(o, text, nil) {
			fmt.Fprintf(&b, "  %s %q\n", []string{"text", "thought", "call", "arguments"}[e.Kind], e.Text)
		}
	}
	const want = `"plain text, with <b>tags</b> and  spaces "
  text "plain text, with <b>tags</b> and  spaces "
"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"}\\\"\"}]}}\n</tool_call>"
  call "f"
  arguments "{\"a\": [1, {\"b\": \"}\\\"\"}]}"
"See:\n\n<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call> \n <tool_call>{\"name\": \"g\"}</tool_call>\n."
  text "See:"
  call "f"
  arguments "{}"
  call "g"
  arguments "{}"
  text "\n."
"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool"
  call "f"
  arguments "{\"a\": 1}"
"<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"} </tool_call>\n\n"
  call "f"
  arguments "{}"
"<tool_call>{\"name\": 5}</tool_call>"
  text "<tool_call>{\"name\": 5}</tool_call>"
"<tool_call>{'name': 'f'}</tool_call>"
  text "<tool_call>{'name': 'f'}</tool_call>"
"<tool_call><tool_call>{\"name\":\"f\"}</tool_call>"
  text "<tool_call>"
  call "f"
  arguments "{}"
"<tool_call>{\"name\": \"f\"} and more</tool_call>"
  text "<tool_call>{\"name\": \"f\"} and more</tool_call>"
"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"
  text "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"
"<<tool_call>{\"a\": tru}<tool_<tool_call>"
  text "<<tool_call>{\"a\": tru}<tool_<tool_call>"
"                                                  <tool_call>\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n{}"
`
	got := b.String()
	if i := strings.LastIndex(got, "  text"); got[:i] != want {
		t.Errorf("got\n%s", got)
	}
}

// FuzzOutput: a text gives the same however it is split, and nothing of it is lost but
// what belongs to calls and reasoning.
func FuzzOutput(f *testing.F) {
	for i, text := range outputTexts {
		f.Add(text, []byte{1, 2, 3, 1, 1, 1, 7, byte(i), 5, 11, 0, 4})
		f.Add(text, []byte(strings.Repeat("\x01", len(text))))
	}
	f.Fuzz(func(t *testing.T, text string, cuts []byte) {
		whole, parts, rest := parsers(), parsers(), parsers()
		for i := range whole {
			want := split(whole[i], text, nil)
			if got := split(parts[i], text, cuts); !slices.Equal(got, want) {
				t.Errorf("%q in pieces of %v: %q, whole %q", text, cuts, got, want)
			}
			p := rest[i]
			said, called := "", []string(nil)
			for _, e := range join(nil, p.Next(text, true)) {
				switch e.Kind {
				case Text:
					said += e.Text
				case Arguments:
					called = append(called, e.Text)
				}
			}
			if p.Calls() == 0 && p.think == nil && (p.calls == nil || !p.calls.exact) && said != text {
				t.Errorf("%q calls nothing, and %q is left of it", text, said)
			}
			for _, arguments := range called {
				if trimmed := strings.TrimLeft(arguments, spaces); (!json.Valid([]byte(arguments)) || trimmed[0] != '{') && !p.calls.exact {
					t.Errorf("%q: arguments %q are no object", text, arguments)
				}
			}
		}
	})
}

// again returns a copy of o, which must not have read any text yet.
func (o *Parser) again() *Parser {
	twin := *o
	if o.calls != nil {
		calls := *o.calls
		twin.calls = &calls
	}
	if o.think != nil {
		think := *o.think
		twin.think = &think
	}
	return &twin
}

// TestEverySplit: a text cut into three pieces at any positions gives the same events as the
// whole.
func TestEverySplit(t *testing.T) {
	for _, text := range outputTexts {
		for k, unread := range parsers() {
			want := split(unread.again(), text, nil)
			for i := range len(text) + 1 {
				for j := i; j <= len(text); j++ {
					o := unread.again()
					var got []Event
					for n, piece := range []string{text[:i], text[i:j], text[j:]} {
						got = join(got, o.Next(piece, n == 2))
					}
					if !slices.Equal(got, want) {
						t.Fatalf("way %d: %q, %q, %q: %q, whole %q", k, text[:i], text[i:j], text[j:], got, want)
					}
				}
			}
		}
	}
}

// TestHeldBack: of a text without a call, at most 64 bytes are delayed.
func TestHeldBack(t *testing.T) {
	for _, text := range []string{strings.Repeat("a <tool_cal ", 100), strings.Repeat(" \n", 500), strings.Repeat("<tool_call> x ", 100),
		strings.Repeat("<", 500), "<tool_call>" + strings.Repeat(" ", 500), strings.Repeat(`<tool_call>{"a":"<tool_call>{"`, 50)} {
		for i, o := range parsers() {
			given := 0
			for j := range len(text) {
				for _, e := range o.Next(text[j:j+1], false) {
					given += len(e.Text)
				}
				if o.calls != nil && o.calls.state >= inBody || o.think != nil && o.think.inside {
					continue
				}
				if held := j + 1 - given; held > 64 && o.Calls() == 0 && (o.think == nil || o.think.done && !o.think.begun) {
					t.Fatalf("way %d: %d bytes of %.40q are held back", i, held, text)
				}
			}
		}
	}
}

// TestHostileTags: each byte of a hostile text is scanned once: a megabyte in pieces of one byte
// takes seconds at most, and four times the text allocates about four times the memory.
func TestHostileTags(t *testing.T) {
	const size = 1 << 20
	for _, unit := range []string{"<tool_call>", `<tool_call>{"a":"`, `<tool_call>{"name":"f"}`, "<tool_call>{", " ", `<tool_call>{"name":"f","arguments":{}}</tool_call>`, "<think>", "</think", "<think> "} {
		text := strings.Repeat(unit, size/len(unit))
		for _, o := range []*Parser{{calls: &calls{}}, {calls: &calls{exact: true}, think: &thinking{}}, {think: &thinking{inside: true}}} {
			steps := 0
			for i := range len(text) {
				o.Next(text[i:i+1], false)
				if o.think != nil {
					steps = max(steps, len(o.think.held))
				}
			}
			o.Next("", true)
			if steps > 64 {
				t.Errorf("%q: %d bytes are looked at again with each piece", unit, steps)
			}
		}
		for i := range parsers() {
			quarter, whole := allocated(i, text[:size/16]), allocated(i, text[:size/4])
			if whole > 6*quarter+1<<18 {
				t.Errorf("way %d, %q: a quarter of a megabyte takes %d bytes of memory, a quarter of that %d", i, unit, whole, quarter)
			}
		}
	}
}

// allocated returns the bytes allocated while one of parsers(), selected by its index way, reads a
// text in pieces of seven bytes.
func allocated(way int, text string) uint64 {
	o := parsers()[way]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for len(text) > 0 {
		n := min(7, len(text))
		o.Next(text[:n], n == len(text))
		text = text[n:]
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
