package parse

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/grammar/toolcall"
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

// testTools are the tools of the requests in the tests.
var testTools = []string{"f", "g", "weather"}

// ways returns the ways to read an output in a form, nil for an output without calls.
func ways(f *toolcall.Form) (all []Options) {
	all = []Options{{Form: f, Tools: testTools}, {Form: f, One: true, Tools: testTools}, {Form: f, Exact: true, Tools: testTools}}
	if f == nil || f == toolcall.Hermes {
		all = append(all, Options{Form: f, Reasoning: true}, Options{Form: f, Exact: true, Reasoning: true, Opened: true, Tools: testTools})
	}
	return all
}

// everyForm returns all toolcall.Forms(), and nil for outputs without calls.
func everyForm() []*toolcall.Form { return append([]*toolcall.Form{nil}, toolcall.Forms()...) }

var reasoningTexts = []string{
	"<think>\nhm\n</think>\n\nyes", " <think></think>no", "<thin", strings.Repeat(" ", 40) + "<think>a</think>",
	"<think> a </th ink> " + strings.Repeat(" ", 60) + "</think> b <think>",
	"<think>one</think>\n<tool_call>{\"name\":\"f\"}</tool_call>", "</think>\n<tool_call>",
}

// texts returns the outputs of the tests in a form.
func texts(t testing.TB, f *toolcall.Form) (all []string) {
	for _, row := range readRows(t) {
		if row.form == f || f == nil && row.form == toolcall.Hermes {
			all = append(all, row.text)
		}
	}
	if f == nil || f == toolcall.Hermes {
		all = append(all, reasoningTexts...)
	}
	return all
}

// FuzzParser: in any form a text gives the same however it is split, nothing of it is lost but what
// belongs to calls and reasoning, and the arguments are objects.
func FuzzParser(f *testing.F) {
	for i, form := range everyForm() {
		for _, text := range texts(f, form) {
			f.Add(byte(i), text, []byte{1, 2, 3, 1, 1, 1, 7, byte(i), 5, 11, 0, 4})
			f.Add(byte(i), text, []byte(strings.Repeat("\x01", len(text))))
		}
	}
	f.Fuzz(func(t *testing.T, form byte, text string, cuts []byte) {
		for _, o := range ways(everyForm()[int(form)%(len(toolcall.Forms())+1)]) {
			whole := NewParser(o)
			want := split(whole, text, nil)
			if got := split(NewParser(o), text, cuts); !slices.Equal(got, want) {
				t.Errorf("%+v: %q in pieces of %v: %q, whole %q", o, text, cuts, got, want)
			}
			said := ""
			for i, e := range want {
				if e.Kind == Text {
					said += e.Text
				}
				if trimmed := strings.TrimLeft(e.Text, spaces); e.Kind == Arguments && !o.Exact && (trimmed == "" || trimmed[0] != '{' || !json.Valid([]byte(e.Text)) && i < len(want)-1) {
					t.Errorf("%q: arguments %q are no object", text, e.Text)
				}
			}
			drops := o.Form != nil && (readings[o.Form.Name].channels || readings[o.Form.Name].content != "")
			if whole.Calls() == 0 && !o.Reasoning && !drops && said != text {
				t.Errorf("%+v: %q calls nothing, and %q is left of it", o, text, said)
			}
		}
	})
}

// TestEverySplit: a text cut into two pieces anywhere, or into three with a short one between, or
// into bytes, gives the same events as the whole.
func TestEverySplit(t *testing.T) {
	for _, f := range everyForm() {
		for _, text := range texts(t, f) {
			for _, o := range ways(f) {
				want := split(NewParser(o), text, nil)
				check := func(pieces ...string) {
					var got []Event
					p := NewParser(o)
					for i, piece := range pieces {
						got = join(got, p.Next(piece, i == len(pieces)-1))
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%+v: %q: %q, whole %q", o, pieces, got, want)
					}
				}
				check(strings.Split(text, "")...)
				check(append(strings.Split(text, ""), "")...)
				for i := range len(text) {
					for _, n := range []int{0, 1, 2, 5} {
						j := min(i+n, len(text))
						check(text[:i], text[i:j], text[j:])
					}
				}
			}
		}
	}
}

// marksOf returns the fixed texts of a form.
func marksOf(f *toolcall.Form) (all []string) {
	if f == nil {
		return []string{"<tool_call>"}
	}
	r := readings[f.Name]
	for _, m := range append(slices.Clone(r.marks), r.around...) {
		all = append(all, m.open, m.close)
	}
	all = append(append(append(append(all, r.before...), r.between...), r.after...), r.close)
	if r.channels {
		all = append(all, markers...)
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// TestFixed: of the texts that may stand at one place, none is the beginning of another.
func TestFixed(t *testing.T) {
	for _, f := range toolcall.Forms() {
		for _, p := range []*calls{{reads: readings[f.Name], at: inLead, group: group{marked: !readings[f.Name].first}}, {reads: readings[f.Name], at: inBetween}, {reads: readings[f.Name], at: inClose}} {
			p.form = f
			for _, pair := range append(slices.Clone(readings[f.Name].marks), readings[f.Name].around...) {
				p.group.open = append(p.group.open, pair.close)
			}
			all := slices.Collect(p.expected)
			for _, a := range all {
				for _, b := range all {
					if a != "" && a != b && strings.HasPrefix(b, a) {
						t.Errorf("%s, place %d: %q begins with %q", f.Name, p.at, b, a)
					}
				}
			}
		}
	}
}

// TestHeldBack: of a text without a call, at most 64 bytes are delayed, and the name of a tool.
func TestHeldBack(t *testing.T) {
	long := strings.Repeat("x", 500)
	for _, f := range everyForm() {
		hostile := []string{strings.Repeat(" \n", 500), strings.Repeat("<", 500), strings.Repeat(`{"a":"<tool_call>{"`, 50), strings.Repeat("a\n", 200),
			`{"name": "` + long, `{"name": "f", "b": "` + long, `{"` + long, `{"a": [` + strings.Repeat("1, ", 200), "[" + long, "[f " + long, "[[[[" + long,
			"```json\n{\"name\": \"f\",\n\"note\": \"" + long, strings.Repeat("```json\n", 100), strings.Repeat(",;", 200), long, " to=" + long}
		for _, m := range marksOf(f) {
			hostile = append(hostile, strings.Repeat("a "+m[:len(m)-1]+" ", 50))
		}
		for _, text := range hostile {
			for _, o := range ways(f) {
				if o.Opened {
					continue
				}
				p, given := NewParser(o), 0
				for i := range len(text) {
					for _, e := range p.Next(text[i:i+1], false) {
						given += len(e.Text)
					}
					if held := i + 1 - given; held > 64+len("weather") && p.Calls() == 0 && (p.channels == nil || p.channels.state != inHeader) {
						t.Fatalf("%+v: %d bytes of %.40q are held back", o, held, text)
					}
				}
			}
		}
	}
}

// TestHostile: each byte of a hostile text is scanned a bounded number of times: four times the
// text allocates about four times the memory, in pieces as well as whole.
func TestHostile(t *testing.T) {
	const size = 1 << 12
	for _, f := range everyForm() {
		units := append(marksOf(f), "<think>", "</think", "<think> ", `{"name":"f","arguments":{"a":"`, `{"a":`, "f\n{", "[f(a=[", " ", `{{"name":"f","arguments":{}}`, `[{"name":"f","arguments":{}}`)
		for _, m := range marksOf(f) {
			units = append(units, m+m[:len(m)-1], m+" {", m+`f{"a":1}`, m+`{"name":"f","arguments":{}}`, m+`{"name":"`)
		}
		for _, unit := range units {
			text := strings.Repeat(unit, size/len(unit)*4)
			for _, o := range ways(f) {
				for _, piece := range []int{7, len(text)} {
					quarter, whole := allocated(o, text[:len(text)/4], piece), allocated(o, text, piece)
					if whole > 6*quarter+1<<16 {
						t.Errorf("%+v, %q in pieces of %d: %d bytes take %d of memory, four times as many %d", o, unit, piece, size, quarter, whole)
					}
				}
			}
		}
	}
}

// allocated returns the bytes allocated while a text is read in pieces.
func allocated(o Options, text string, piece int) uint64 {
	p := NewParser(o)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for len(text) > 0 {
		n := min(piece, len(text))
		p.Next(text[:n], n == len(text))
		text = text[n:]
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// written returns calls of f and g as a grammar writes them in a form.
func written(f *toolcall.Form, arguments ...string) string {
	text := f.Begin
	for i, a := range arguments {
		name := testTools[i]
		if !f.Bare {
			name = `"` + name + `"`
		}
		if i > 0 {
			text += f.Gap
		}
		text += f.Open + name + f.Arguments + a + f.Close
	}
	return text + f.End
}

// TestWritten: what a grammar writes from the table of toolcall.Forms() is read back, and with Exact the
// arguments come as they arrive.
func TestWritten(t *testing.T) {
	arguments := []string{`{"city": "Paris", "days": [1, {"b": "}\""}]}`, `{}`, `{"a": {"name": "x", "arguments": {}}}`}
	for _, f := range toolcall.Forms() {
		text := written(f, arguments...)
		for _, o := range ways(f) {
			var want []Event
			for i, a := range arguments {
				if want = append(want, Event{Call, testTools[i]}, Event{Arguments, a}); o.One {
					break
				}
			}
			if o.Reasoning {
				continue
			}
			if got := split(NewParser(o), text, nil); !slices.Equal(got, want) {
				t.Errorf("%s, exact %t: %q gives %q, want %q", f.Name, o.Exact, text, got, want)
			}
		}
		p, given := NewParser(Options{Form: f, Tools: testTools, Exact: true}), 0
		for i := range strings.Index(text, "Paris") {
			for _, e := range p.Next(text[i:i+1], false) {
				given += len(e.Text)
			}
		}
		if want := len(`f{"city": "`); given != want {
			t.Errorf("%s: %d bytes of a call have been given, want %d", f.Name, given, want)
		}
	}
}

// show returns events as the tables of the tests write them.
func show(events []Event) string {
	var all []string
	for _, e := range events {
		switch e.Kind {
		case Text:
			all = append(all, fmt.Sprintf("%q", e.Text))
		case Thought:
			all = append(all, fmt.Sprintf("(%q)", e.Text))
		case Call:
			all = append(all, e.Text)
		case Arguments:
			all[len(all)-1] += e.Text
		}
	}
	return strings.Join(all, " ")
}
