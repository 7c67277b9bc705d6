package grammar

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// around are outputs of free text around calls, as forms of tool calls have them.
var around = []struct {
	free  Free
	rules Rules
}{
	{
		Free{Marks: []string{"<c>"}, Most: 2, Quiet: [2]string{"<t>", "</t>"}},
		Rules{seq(lit("<c>"), times(either(lit("a"), lit("b<c>")), 1, 2), lit("</c>"))},
	},
	{
		Free{Marks: []string{"<c>", "c<c"}, Starts: []Start{{`{"n":"a"`, `{"n": "a"`}, {`{"n":"ab"`, `{"n": "ab"`}, {"```" + `{"n":"a"`, "```" + `"a"`}, {`{{"n":"a"`, `{{"n": "a"`}}, Most: 3},
		Rules{either(seq(lit("<c>"), star(lit("a")), lit(">")), seq(lit("c<c"), lit(">")),
			seq(either(lit(`{"n": "a"`), lit(`{"n": "ab"`)), times(lit(" "), 0, 1), lit("}")), lit("```"+`"a"}`+"```"), lit(`{{"n": "a"}}`))},
	},
	{
		Free{Marks: []string{"<c>"}, Starts: []Start{{`{"n":"a"`, `{"n": "a"`}, {"```" + `{"n":"a"`, "```" + `"a"`}}, Lines: true, Most: 3, Quiet: [2]string{"<t>", "</t>"}},
		Rules{either(seq(lit("<c>"), star(lit("a")), lit(">")), seq(lit(`{"n": "a"`), times(lit(" "), 0, 1), lit("}")), lit("```"+`"a"}`+"```"))},
	},
	{
		Free{Starts: []Start{{"ab\n", "ab"}}, Most: 8, Quiet: [2]string{"<t>", "</t>"}, Opened: true},
		Rules{seq(lit("ab"), ref(1)), either(lit("!"), seq(lit("["), ref(1), lit("]")))},
	},
	{
		Free{Marks: []string{"[T]a", "[U]"}, Most: 1, Special: []string{"<s>"}},
		Rules{either(seq(&Expr{Op: Special, Text: "[T]a[A]"}, star(lit("b")), lit("]")), &Expr{Op: Special, Text: "[U][A]"})},
	},
}

var aroundTokens = []string{"<", "c", ">", "<c", "<c>", "</", "/", "a", "b", "ab", "a<", "<c>a", "c>a</c>", "</c>", "</c>\n", "</c", "c<c", "<t>", "</t>", "t", " ", "\n", ";", ",", "{", "{\"", "\"", "n", `n"`, `":`, `: "`, `: "ab`, `a"`, `"}`, "}", "}}", "```", "`", "\n{", "!", "[", "]", "[T]", "[U", "T", "U", "A", "[A]", "s", "\xff", "é"}

// aroundSpecials are special tokens after aroundTokens.
var aroundSpecials = []string{"[T]", "[A]", "[U]", "<s>", "<c>", "[X]"}

func aroundVocabulary() *Vocabulary {
	n := len(aroundTokens)
	return NewSpecialVocabulary(n+len(aroundSpecials)+1, func(t kv.Token) []byte {
		if int(t) < n {
			return []byte(aroundTokens[t])
		}
		return nil
	}, func(t kv.Token) string {
		if i := int(t) - n; i >= 0 && i < len(aroundSpecials) {
			return aroundSpecials[i]
		}
		return ""
	})
}

// freeOracle reads an output of free text around texts of rules from its beginning, with the
// functions of package strings.
type freeOracle struct {
	Free
	rules *oracle
}

// ask reports whether text can go on to be an output, and whether it is one. ends are the
// positions at which texts of the rules are complete.
func (o *freeOracle) ask(text string) (word, prefix bool, ends []int) {
	from, separators, start := 0, "", true
	if o.Opened {
		from = o.unquiet(text, 0)
	}
	for left := o.Most; from >= 0; {
		end, as, isStart := len(text)+1, "", false
		for _, m := range o.Marks {
			if i := strings.Index(text[from:], m); i >= 0 && from+i+len(m) < end {
				end, as = from+i+len(m), m
			}
		}
		if e := begins(text, from, o.Quiet[0], "", true); start && separators == "" && o.Quiet[0] != "" && e >= 0 && e < end {
			from = o.unquiet(text, e)
			continue
		}
		for at := from; ; {
			far := at
			for _, s := range o.Starts {
				if at > from || start {
					e, reached := beginsAt(text, at, s.Text, separators, false)
					if far = max(far, reached); e >= 0 && e < end {
						end, as, isStart = e, s.As, true
					}
				}
			}
			next := strings.IndexByte(text[far:], '\n')
			if !o.Lines || isStart || next < 0 {
				break
			}
			at, separators = far+next+1, ""
		}
		if end > len(text) {
			return true, true, ends
		}
		for ; ; end++ {
			done, open := o.rules.ask(as)
			if done {
				break
			}
			if !open || end == len(text) {
				return false, open, ends
			}
			as += text[end : end+1]
		}
		ends = append(ends, end)
		from, start, separators = end, isStart, ",;"
		if left--; left == 0 {
			return end == len(text), end == len(text), ends
		}
	}
	return true, true, ends
}

// unquiet returns the position after the quiet text that begins at from, or -1.
func (o *freeOracle) unquiet(text string, from int) int {
	if i := strings.Index(text[from:], o.Quiet[1]); i >= 0 {
		return from + i + len(o.Quiet[1])
	}
	return -1
}

// begins returns the position after start in text, or -1 if text has something else there.
func begins(text string, from int, start, separators string, exact bool) int {
	at, _ := beginsAt(text, from, start, separators, exact)
	return at
}

// beginsAt also returns the position up to which text and start agree.
func beginsAt(text string, from int, start, separators string, exact bool) (end, reached int) {
	space := " \n\t\r"
	at := from + len(text[from:]) - len(strings.TrimLeft(text[from:], space+separators))
	for i := range len(start) {
		if i > 0 && !exact && strings.Count(start[:i], `"`)%2 == 0 && (strings.ContainsRune(`{:"`, rune(start[i-1])) || start[:i] == "```" || start[:i] == "```json") {
			at += len(text[at:]) - len(strings.TrimLeft(text[at:], space))
		}
		if at >= len(text) || text[at] != start[i] {
			return -1, at
		}
		at++
	}
	return at, at
}

func compileAround(t testing.TB, v *Vocabulary, f Free, rules Rules) (*Grammar, error) {
	t.Helper()
	c, err := NewCompiler(v, rules, Limits{})
	if err == nil {
		err = c.Around(f)
	}
	for done := false; err == nil && !done; {
		done, err = c.Run(1 << 20)
	}
	if err != nil {
		return nil, err
	}
	return c.Grammar(), nil
}

// TestFree writes random outputs token by token. Each mask, and each Accept, must be the oracle's.
func TestFree(t *testing.T) {
	v := aroundVocabulary()
	complete, crossed := 0, 0
	for i, a := range around {
		g, err := compileAround(t, v, a.free, a.rules)
		if err != nil {
			t.Fatal(err)
		}
		o := &freeOracle{a.free, newOracle(plainSpecials(a.rules), aroundTokens)}
		r := rand.New(rand.NewPCG(7, uint64(i)))
		mask := make([]uint64, v.words())
		for range 30 {
			m, text := g.NewMatcher(), ""
			for len(text) < 60 && !m.MustEnd() {
				word, _, before := o.ask(text)
				if m.CanEnd() != word {
					t.Fatalf("grammar %d: after %q, CanEnd is %v", i, text, m.CanEnd())
				}
				m.Mask(mask)
				var allowed []kv.Token
				for n, token := range aroundTokens {
					_, want, ends := o.ask(text + token)
					if len(ends) > len(before) && ends[len(before)] < len(text+token) {
						want = false // goes on past the end of a text of the rules
						crossed++
					}
					got, accepts := mask[n/64]>>(n%64)&1 == 1, m.Clone().Accept(kv.Token(n))
					if token == "\xff" {
						want = false // in front of special tokens in the trie
					}
					if got != want || accepts != want {
						t.Fatalf("grammar %d: after %q, %q is %v in the mask, %v by Accept, want %v", i, text, token, got, accepts, want)
					}
					if want {
						allowed = append(allowed, kv.Token(n))
					}
				}
				pick := allowed[r.IntN(len(allowed))]
				if !m.Accept(pick) {
					t.Fatal("not accepted")
				}
				text += aroundTokens[pick]
			}
			if _, _, ends := o.ask(text); len(ends) > 0 {
				complete++
			}
		}
	}
	if complete < 20 || crossed == 0 {
		t.Errorf("only %d outputs have a text of the rules, %d tokens go past the end of one", complete, crossed)
	}
}

// plainSpecials returns rules with the operation Text for Special.
func plainSpecials(rules Rules) (plain Rules) {
	for _, e := range rules {
		twin := *e
		if twin.Op == Special {
			twin.Op = Text
		}
		twin.Sub = plainSpecials(e.Sub)
		plain = append(plain, &twin)
	}
	return plain
}

// TestFreeSpecial: a special token stands for its content in marks and in texts of the operation
// Special, and nowhere else.
func TestFreeSpecial(t *testing.T) {
	v := aroundVocabulary()
	g, err := compileAround(t, v, around[4].free, around[4].rules)
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]kv.Token{}
	for i, s := range aroundTokens {
		tokens[s] = kv.Token(i)
	}
	for i, s := range aroundSpecials {
		tokens["special "+s] = kv.Token(len(aroundTokens) + i)
	}
	mask := make([]uint64, v.words())
	for _, c := range []struct {
		tokens  []string
		refused string // after them
		ends    bool
	}{
		{[]string{"special <s>", "a", "special [T]", "a", "special [A]", "b", "b", "]"}, "", true},
		{[]string{"special [T]", "a", "[A]", "]"}, "a", true},
		{[]string{"special [T]", "b"}, "special [A]", true},
		{[]string{"[T]", "a", "special [A]"}, "special [A]", false},
		{[]string{"special [U]", "special [A]"}, "special [A]", true},
		{[]string{"[U", "]", "[A]"}, "a", true},
		{[]string{"special [U]"}, "a", false},
		{nil, "special [A]", true},
		{nil, "special [X]", true},
		{nil, "special <c>", true},
		{[]string{"special [T]", "a", "special [A]"}, "special <s>", false},
	} {
		m := g.NewMatcher()
		for i, s := range c.tokens {
			if m.Mask(mask); mask[tokens[s]/64]>>(tokens[s]%64)&1 == 0 || !m.Accept(tokens[s]) {
				t.Fatalf("%q: %q is refused", c.tokens[:i], s)
			}
		}
		if m.CanEnd() != c.ends {
			t.Errorf("after %q, CanEnd is %v", c.tokens, m.CanEnd())
		}
		if c.refused != "" {
			token := tokens[c.refused]
			if m.Mask(mask); mask[token/64]>>(token%64)&1 == 1 || m.Accept(token) {
				t.Errorf("after %q, %q is allowed", c.tokens, c.refused)
			}
		}
	}
	if v.Bytes(tokens["special [T]"]) != nil {
		t.Error("a special token has bytes")
	}
}

// TestFreeRefused: beginnings that no text of the rules has are refused, and others that can't be.
func TestFreeRefused(t *testing.T) {
	v := aroundVocabulary()
	for _, c := range []struct {
		free Free
		is   error
	}{
		{Free{Marks: []string{"<c>"}}, ErrInvalid},
		{Free{Most: 1}, ErrInvalid},
		{Free{Marks: []string{""}, Most: 1}, ErrInvalid},
		{Free{Marks: []string{"<d>"}, Most: 1}, ErrInvalid},
		{Free{Marks: []string{"<c>a"}, Most: 1}, ErrInvalid}, // a whole text
		{Free{Marks: []string{strings.Repeat("x", maxFreeBytes+1)}, Most: 1}, ErrTooLarge},
	} {
		if _, err := compileAround(t, v, c.free, Rules{lit("<c>a")}); !errors.Is(err, c.is) {
			t.Errorf("%.50v: %v", c.free, err)
		}
	}
}

// FuzzFree: byte by byte, a text is accepted as far as the oracle says, and may end where it says.
func FuzzFree(f *testing.F) {
	for i, texts := range [][]string{
		{"a <c>ab<c></c> b", "<t><c></t><c>a</c>\n<c>", "<c<c>aa</c>", "<c><c>", " <t> <t></t>", "<t></t"},
		{"\n{ \"n\": \"a\" }, {{\"n\":\"a\"}}", "```{\"n\":\"a\"}```", "{\"n\":\"abc\"}", "c<c>", "<c>>{\"n\":\"a\""},
		{"</t>ab\n[[!]]ab\n!", "ab\n!</t>", "</t>;ab\n", "</t>ab\n!;,ab\n!"},
		{"[T]a[A]b]", "[U][A]", "[T]b", "[T]a[A]bb] "},
	} {
		for _, text := range texts {
			f.Add(uint8(i), text)
		}
	}
	v := aroundVocabulary()
	var grammars []*Grammar
	var oracles []*freeOracle
	for _, a := range around {
		g, err := compileAround(f, v, a.free, a.rules)
		if err != nil {
			f.Fatal(err)
		}
		grammars, oracles = append(grammars, g), append(oracles, &freeOracle{a.free, newOracle(plainSpecials(a.rules), aroundTokens)})
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		i := int(which) % len(around)
		text = strings.ReplaceAll(text[:min(len(text), 60)], "\xff", "")
		m := grammars[i].NewMatcher()
		for at := range len(text) + 1 {
			word, prefix, _ := oracles[i].ask(text[:at])
			accepted := at == 0 || m.AcceptBytes([]byte{text[at-1]})
			if accepted != prefix || accepted && m.CanEnd() != word {
				t.Fatalf("grammar %d: %q is accepted: %v, may end: %v; want %v, %v", i, text[:at], accepted, m.CanEnd(), prefix, word)
			}
			if !accepted {
				return
			}
		}
	})
}

// BenchmarkFree: a token of free text, and the mask of a place in a mark that did not occur before.
func BenchmarkFree(b *testing.B) {
	v := largeVocabulary()
	var starts []Start
	for i := range 64 {
		name := strings.Repeat("tool", 1+i%4) + string(rune('a'+i%26))
		starts = append(starts, Start{`{"name":"` + name + `"`, `{"name": "`})
	}
	g, err := compileAround(b, v, Free{Marks: []string{"<tool_call>"}, Starts: starts, Most: 8}, Rules{either(seq(lit("<tool_call>"), ref(1)), seq(lit(`{"name": "`), ref(1))), seq(lit("{"), star(jsonChar()), lit("}"))})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("token", func(b *testing.B) {
		m, sum := g.NewMatcher(), uint64(0)
		for b.Loop() {
			m.AcceptBytes([]byte(" light"))
			sum += m.State()
		}
	})
	for name, text := range map[string]string{"free": "", "mark": "<tool_call", "start": `{"name":"tool`} {
		b.Run("mask=new/at="+name, func(b *testing.B) {
			m := g.NewMatcher()
			m.AcceptBytes([]byte("." + text))
			if name == "start" {
				m.Reset()
				m.AcceptBytes([]byte(text))
			}
			mask := make([]uint64, v.words())
			for b.Loop() {
				clear(g.free.refused)
				m.Mask(mask)
			}
		})
	}
}
