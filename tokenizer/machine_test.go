package tokenizer

import (
	"errors"
	"flag"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"

	"github.com/coppice-llm/coppice/kv"
)

var expressions = flag.Int("expressions", 1500, "how many random expressions TestMachineMatchesOthers tries")

// spansOf returns the spans of text, in order, for matches, which are the ranges of an
// expression's matches in it.
func spansOf(text string, matches [][]int) (all []span) {
	prev := 0
	for _, m := range matches {
		if prev < m[0] {
			all = append(all, span{prev, m[0], false})
		}
		if m[0] < m[1] {
			all = append(all, span{m[0], m[1], true})
		}
		prev = m[1]
	}
	if prev < len(text) {
		all = append(all, span{prev, len(text), false})
	}
	return all
}

// regexp2Spans returns the spans that regexp2 finds.
func regexp2Spans(re *regexp2.Regexp, text string) []span {
	var offsets []int
	for i := range text {
		offsets = append(offsets, i)
	}
	offsets = append(offsets, len(text))
	var all [][]int
	m, _ := re.FindStringMatch(text)
	for ; m != nil; m, _ = re.FindNextMatch(m) {
		all = append(all, []int{offsets[m.Index], offsets[m.Index+m.Length]})
	}
	return spansOf(text, all)
}

// oracle returns a function that matches expr with another engine, or nil if no engine treats
// expr as the format does. The standard library lacks look-around and atomic groups. regexp2 has
// them, but loses matches of lazy repetitions (\D??\d on "a12") and of alternatives with negated
// classes ((?>\P{L}1|\D) on "A").
func oracle(expr string) func(text string) []span {
	around := strings.Contains(strings.ReplaceAll(strings.ReplaceAll(expr, "(?:", ""), "(?i:", ""), "(?")
	if re, err := regexp.Compile("(?m:" + expr + ")"); err == nil && !around {
		return func(text string) []span { return spansOf(text, re.FindAllStringIndex(text, -1)) }
	}
	if re, err := regexp2.Compile(expr, regexp2.Multiline); err == nil && !lazy.MatchString(expr) && !(strings.Contains(expr, "|") && negated.MatchString(expr)) {
		return func(text string) []span { return regexp2Spans(re, text) }
	}
	return nil
}

var lazy, negated = regexp.MustCompile(`[?*+}]\?`), regexp.MustCompile(`\\[DSP]|\[\^`)

// TestMachineMatchesOthers: random expressions of all supported features, on random texts.
func TestMachineMatchesOthers(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 13))
	atoms := []string{"a", "b", "é", ".", `\s`, `\S`, `\d`, `\D`, `\p{L}`, `\P{L}`, `\pN`, `[ab]`, `[^a\s]`, `[a-cé]`, `[^\r\n\p{L}\p{N}]`, `\n`, `\.`, `^`, `$`, `\x41`, `\u00e9`, "'", `[\-'.]`}
	kinds := []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "("}
	repeats := []string{"", "", "", "?", "*", "+", "??", "*?", "+?", "{2}", "{1,2}", "{1,}", "{2}?"}
	var build func(depth int) string
	build = func(depth int) string {
		var b strings.Builder
		for range 1 + rng.IntN(3) {
			switch n := rng.IntN(8); {
			case n < 5 || depth == 0:
				b.WriteString(atoms[rng.IntN(len(atoms))] + repeats[rng.IntN(len(repeats))])
			case n == 5:
				b.WriteString("(?:" + build(depth-1) + "|" + build(depth-1) + ")")
			default:
				b.WriteString(kinds[rng.IntN(len(kinds))] + build(depth-1) + ")" + repeats[rng.IntN(4)])
			}
		}
		return b.String()
	}
	parts := []string{"a", "b", "A", "é", "É", " ", "\n", "\r", "1", "12", ".", "'", "-", "c", "中", "B"}
	compared := 0
	for range *expressions {
		expr := build(2)
		p, err := tryPattern(expr)
		if err != nil {
			continue
		}
		other := oracle(expr)
		if other == nil {
			continue
		}
		for range 4 {
			var b strings.Builder
			for range rng.IntN(9) {
				b.WriteString(parts[rng.IntN(len(parts))])
			}
			text := b.String()
			compared++
			want := other(text)
			for name, p := range map[string]*pattern{"automaton": p, "machine": {m: p.m}} {
				if got := p.allSpans(nil, text); !slices.Equal(got, want) {
					t.Fatalf("%s: %q on %q: %v, want %v", name, expr, text, got, want)
				}
			}
		}
	}
	if compared < *expressions {
		t.Errorf("%d comparisons, want more", compared)
	}
}

// withPattern returns a byte-level tokenizer that splits by an expression.
func withPattern(t testing.TB, expr string) *Tokenizer {
	t.Helper()
	tok, err := parse(edit(t, map[string]string{"pre_tokenizer": splitJSON(`{"Regex":`+quoted(expr)+`}`, isolatedSplit, plainByteLevel)}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestHardPatterns: expressions that would take minutes stop after a number of steps that is
// the same each time, with an error where the method can return one.
func TestHardPatterns(t *testing.T) {
	for _, expr := range []string{`a*a*a*a*b|.`, `(?=a*a*a*a*b)a|.`, `(?<=b.*.*.*)a|.`, `a*?a*?a*?a*?b|.`, `(?:ab)*a*a*a*a*a*c|.`} {
		tok := withPattern(t, expr)
		e := tok.NewEncoder()
		text := strings.Repeat("a", 3000)
		got, err := e.EncodeWith(nil, text, Options{})
		again, errAgain := e.EncodeWith(nil, text, Options{})
		if !errors.Is(err, ErrTooHard) || !errors.Is(errAgain, ErrTooHard) || !slices.Equal(got, again) {
			t.Errorf("%s: %d tokens and %v, then %d and %v", expr, len(got), err, len(again), errAgain)
		}
		if plain := tok.Decode(nil, tok.Encode(nil, text), false); string(plain) != text {
			t.Errorf("%s: Encode gives %d bytes of %d", expr, len(plain), len(text))
		}
		if _, err := e.EncodeWith(nil, text[:20], Options{}); err != nil {
			t.Errorf("%s: a short text: %v", expr, err)
		}
	}
}

// TestEncodeWithMatchesEncode: within the bounds the tokens are those of Encode; beyond them they
// are a prefix, and only text near the bound is processed.
func TestEncodeWithMatchesEncode(t *testing.T) {
	f := readFamilies(t)
	text := strings.Repeat("The light in the glass, 1730. É中 <|im_end|> </s>\n", 40)
	for i := range f.Families {
		tok := f.open(t, &f.Families[i])
		e := tok.NewEncoder()
		for _, prompt := range []bool{false, true} {
			want := tok.Encode(nil, text)
			if prompt {
				want = tok.EncodePrompt(nil, text)
			}
			before := []kv.Token{7, 7}
			for _, most := range []int{0, len(want), len(want) + 1, len(want) - 1, len(want) / 2, 1} {
				got, err := e.EncodeWith(before, text, Options{Prompt: prompt, MaxTokens: most})
				if most == 0 || most >= len(want) {
					if err != nil || !slices.Equal(got[2:], want) {
						t.Errorf("%s, %d at most: %v", f.Families[i].Name, most, err)
					}
					continue
				}
				if !errors.Is(err, ErrTooLong) || len(got)-2 > most+100 || !slices.Equal(got[2:], want[:len(got)-2]) {
					t.Errorf("%s, %d of %d at most: %d, %v", f.Families[i].Name, most, len(want), len(got)-2, err)
				}
			}
		}
	}
}

// TestLongPiece: a piece that must have too many tokens is not merged.
func TestLongPiece(t *testing.T) {
	tok := withPattern(t, `[^x]+|x`)
	e := tok.NewEncoder()
	if _, err := e.EncodeWith(nil, strings.Repeat("the ", 1<<16), Options{MaxTokens: 100}); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	if cap(e.s.nodes) > 0 {
		t.Errorf("%d symbols were merged", cap(e.s.nodes))
	}
}

// TestPlain: special tokens at the given offsets are text, elsewhere they are tokens.
func TestPlain(t *testing.T) {
	tok, err := parse(small(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	e := tok.NewEncoder()
	text := "<s>the</s><s></s>"
	end, _ := tok.AddedToken("</s>")
	for _, tc := range []struct {
		plain []int
		ends  int
	}{{nil, 2}, {[]int{6}, 1}, {[]int{13}, 1}, {[]int{6, 13}, 0}, {[]int{0, 5, 7}, 2}, {[]int{0, 6, 10, 13}, 0}} {
		got, err := e.EncodeWith(nil, text, Options{Plain: tc.plain})
		ends := 0
		for _, id := range got {
			if id == end {
				ends++
			}
		}
		if err != nil || ends != tc.ends || string(tok.Decode(nil, got, false)) != text {
			t.Errorf("%v: %d ends, want %d, in %q: %v", tc.plain, ends, tc.ends, tok.Decode(nil, got, false), err)
		}
	}
	got, err := e.EncodeWith(nil, text, Options{Literal: true})
	if err != nil || slices.Contains(got, end) || string(tok.Decode(nil, got, false)) != text {
		t.Errorf("literal: %v, %v", got, err)
	}
	if got := tok.ControlTokens(); !slices.Equal(got, []string{"<s>", "</s>"}) {
		t.Errorf("%q", got)
	}
}

func BenchmarkPattern(b *testing.B) {
	text := strings.Repeat("What is light? It's 1730, and the Opticks of 4th edition.\n", 200)
	p, err := tryPattern(PatternLlama3)
	if err != nil {
		b.Fatal(err)
	}
	re := regexp2.MustCompile(PatternLlama3, regexp2.Multiline)
	for name, p := range map[string]*pattern{"automaton": p, "machine": {m: p.m}} {
		b.Run("engine="+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p.allSpans(nil, text)
			}
		})
	}
	b.Run("engine=regexp2", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			regexp2Spans(re, text)
		}
	})
}
