package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/coppice-llm/coppice/internal/bail"
)

// familyPatterns are the expressions of the model families.
var familyPatterns = append(PatternsDeepSeek3(), PatternLlama3, PatternQwen2, PatternGPT2, PatternTekken, PatternO200k)

// The expressions of all families have an automaton, and it finds what the machine finds.
func TestAutomataMatchMachines(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1730))
	parts := []string{
		"a", "B", "ab", "XY", "Zz", "'s", "'LL", "'rE", "'", "ſ", " ", "  ", "\n", "\r\n", "\t", "7", "1234", ".", "/", "//", "-", "--", "@", "`", "~", "_",
		"é", "É", "e\u0301", "\u0301", "\u0301\u0301", "中", "龥", "龦", "一", "あ", "゛", "\u3099", "\u3040", "・", "゠", "ー", "ʰ", "ǅ", "ª", "한", "ع",
		"क", "्", "🙂", "€", "\u200d", "\u00a0", "\u2028", "\u3000", "Ⅷ", "½", "\x00", "\x01", "\u0378", "\ufeff", "\ue000", "\u0903", "\u20dd", "\xff",
		"\xe2\x82",
	}
	for _, expr := range familyPatterns {
		p, err := tryPattern(expr)
		if err != nil || p.d == nil {
			t.Fatalf("%s: %v", expr, err)
		}
		plain := &pattern{m: p.m}
		for range 6000 {
			var b strings.Builder
			for range 1 + rng.IntN(9) {
				b.WriteString(parts[rng.IntN(len(parts))])
			}
			text := b.String()
			if got, want := p.allSpans(nil, text), plain.allSpans(nil, text); !slices.Equal(got, want) {
				t.Fatalf("%s\n%q: %v, want %v", expr, text, got, want)
			}
		}
	}
}

// Expressions that look around further, or match "", have none.
func TestPatternsWithoutAutomata(t *testing.T) {
	for _, expr := range []string{`a(?=bc)`, `(?<=a)b`, `^a`, `(?>a|ab)c`, `a*`, `a|`, strings.Repeat("a", maxDFACode)} {
		if p, err := tryPattern(expr); err != nil || p.d != nil {
			t.Errorf("%.20s: %v, %v", expr, p, err)
		}
	}
}

// allSpans appends the spans of text to dst.
func (p *pattern) allSpans(dst []span, text string) []span {
	p.spans(text, &scratch{}, func(s span) bool {
		dst = append(dst, s)
		return true
	})
	return dst
}

func TestPatternOnInvalidUTF8(t *testing.T) {
	p, err := tryPattern(`[a-z]+`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	const text = "\xffab\xe2\x82é\x80cd\xf0"
	for _, s := range p.allSpans(nil, text) {
		got = append(got, text[s.lo:s.hi])
	}
	if want := []string{"\xff", "ab", "\xe2\x82é\x80", "cd", "\xf0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPatternsAtTheLimits(t *testing.T) {
	for _, tc := range []struct {
		expr string
		want string // "" if it is supported
	}{
		{strings.Repeat("a", maxPattern), ""},
		{strings.Repeat("a", maxPattern+1), "8193 bytes"},
		{strings.Repeat("(", maxGroups) + "a" + strings.Repeat(")", maxGroups), ""},
		{strings.Repeat("(", maxGroups+1) + "a" + strings.Repeat(")", maxGroups+1), "nested too deep"},
		{`(?:a*b)?`, ""}, {`(?:a*b)*`, "a repetition of a group"}, {`(?:a*b){2}`, "a repetition of a group"},
		{`((a+))+`, "a repetition of a group"}, {`(?:a{2,})*`, "a repetition of a group"}, {`(?:ab)*`, ""}, {`(?:a|a)*`, "a repetition of a group"}, {`(?:a?b)+`, "a repetition of a group"}, {`(?:a|b){1,9}`, "a repetition of a group"}, {`(?i:'s|'t)?`, ""},
		{`a*?`, ""}, {`a+?b`, ""}, {`a*+`, "possessive"}, {`a**`, "possessive"}, {`a{x}`, "the repetition {x}"}, {`a{`, "a brace"},
		{`[]a]`, ""}, {`[^]a]+`, ""}, {`[a`, "a set without"}, {`a)`, "nothing opens"}, {`\`, "a backslash"}, {`(?m)a`, "the group (?m)"},
		{`\p{Greek}\P{L}\pL[\p{N}\d]`, ""}, {`\w`, `the escape \w`}, {`\1`, `the escape \1`}, {`\p{Nonsense}`, "Nonsense"},
	} {
		_, err := tryPattern(tc.expr)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%.40q: %v", tc.expr, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%.40q: error %v, want one with %q", tc.expr, err, tc.want)
		}
	}
}

// Expressions that may take exponential time must be refused: otherwise the test would not end.
func TestNoPatternTakesExponentialTime(t *testing.T) {
	for _, expr := range []string{`(a+)+b`, `(?:a|a)*b`, `(a*)*b`, `(?:a+|x)*b`, `a*a*b`} {
		if p, err := tryPattern(expr); err == nil {
			p.allSpans(nil, strings.Repeat("a", 24)+"c")
		}
	}
}

func FuzzPattern(f *testing.F) {
	f.Add(`\p{L}+|[^\s]`, "ab \xff")
	f.Add(PatternTekken, "aB c")
	f.Fuzz(func(t *testing.T, expr, text string) {
		if len(text) > 20 {
			return
		}
		p, err := tryPattern(expr)
		if err != nil {
			return
		}
		all := p.allSpans(nil, text)
		if plain := (&pattern{m: p.m}).allSpans(nil, text); !slices.Equal(all, plain) {
			t.Fatalf("%q on %q: %v, and %v by the machine", expr, text, all, plain)
		}
		at := 0
		for _, s := range all {
			if s.lo != at || s.hi <= s.lo {
				t.Fatalf("%q on %q: [%d, %d) after %d", expr, text, s.lo, s.hi, at)
			}
			at = s.hi
		}
		if at != len(text) {
			t.Fatalf("%q on %q: ends at %d", expr, text, at)
		}
	})
}

// A file with too many steps is refused before any expression is compiled, which may take long.
func TestTooManyStepsAreNotCompiled(t *testing.T) {
	part := `{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"}`
	list := strings.Repeat(part+",", maxSteps) + part
	_, err := parse(edit(t, map[string]string{"pre_tokenizer": `{"type":"Sequence","pretokenizers":[` + list + `]}`}), nil)
	if err == nil || !strings.Contains(err.Error(), "33 pre_tokenizers") {
		t.Error(err)
	}
}

func TestCasedRunesAreAll(t *testing.T) {
	cased := casedRunes()
	for r := range rune(unicode.MaxRune + 1) {
		if _, ok := slices.BinarySearch(cased, r); ok != (unicode.SimpleFold(r) != r) {
			t.Fatalf("%q is among the cased runes: %v", r, ok)
		}
	}
}

// tryPattern is newPattern with an error.
func tryPattern(expr string) (p *pattern, err error) {
	defer bail.Recover(&err)
	return newPattern(expr), nil
}
