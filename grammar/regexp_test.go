package grammar

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var byteTokens = func() (tokens []string) {
	for b := range 256 {
		tokens = append(tokens, string([]byte{byte(b)}))
	}
	return tokens
}()

// compareRegexp compares the grammar of pattern with package regexp on texts. It returns false if
// the pattern is refused, also as too large or as one that matches nothing.
func compareRegexp(t testing.TB, pattern string, texts []string) bool {
	rules, err := ParseRegexp(pattern)
	if err != nil {
		return false
	}
	whole, err := regexp.Compile(`^(?:` + pattern + `)$`)
	if err != nil {
		return false
	}
	g, err := compile(vocabularyOf(byteTokens), rules, Limits{Nodes: 1 << 14}, 1<<16)
	if err != nil {
		if errors.Is(err, ErrNothing) {
			for _, text := range texts {
				if utf8.ValidString(text) && whole.MatchString(text) {
					t.Fatalf("%q matches %q: %v", pattern, text, err)
				}
			}
		} else if !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%q: %v", pattern, err)
		}
		return false
	}
	m := g.NewMatcher()
	for _, text := range texts {
		if !utf8.ValidString(text) {
			continue
		}
		m.Reset()
		got := (text == "" || m.AcceptBytes([]byte(text))) && m.CanEnd()
		if want := whole.MatchString(text); got != want {
			t.Fatalf("%q on %q: %v, want %v", pattern, text, got, want)
		}
	}
	return true
}

func TestRegexpsMatchAsPackageRegexp(t *testing.T) {
	texts := []string{"", "a", "b", "ab", "aab", "abc", "é", "É", "ß", "\n", "a\nb", "-", "a-b", "K", "k", "\u212a", "日本", "😀",
		"2024-02-30", "12", "007", "x@y.z", "\x00", "\u007f", "\u0080", "\ufffd", "\U0010ffff", "aaaaaaaaaaaaaaaaaaaaaaa", "ſ", "s", "^a$"}
	for _, pattern := range []string{
		``, `a`, `a*`, `a*?`, `(a|b)*`, `(?i)k+`, `(?i)ÉS?`, `[^a]`, `[[:alpha:]]+`, `\d{4}-\d\d-\d\d`, `.`, `(?s).`, `.*`, `(?s).*`, `\pL*`,
		`^a$`, `^^a|b$$`, `(^a|b$)`, `^`, `$`, `(?:^)?a`, `\Aab\z`, `a{2}`, `a{2,}b`, `a{0,3}`, `(a{1,4}){2,9}`, `(a|aa)*`, `(a?){5}`, `(|a)+`,
		`(a*)*`, `(a*)+b?`, `[a-z&&]`, `\Q^a$\E`, `[\x{80}-\x{10ffff}]`, `\P{Greek}`, `\w+@\w+(\.\w+)+`, `a{300}|b`, `(a|b){0,999}`, `[^\x00-\x{10ffff}]`,
		`x*[^x]`, `(ab|a)(c|bcd)?`, `(?U)a+`, `(?i:a)B?`, `\x{fffd}`, `((a|b)*a(a|b){12}|é)`,
	} {
		if !compareRegexp(t, pattern, texts) && !strings.Contains(pattern, "[^\\x00") {
			t.Errorf("%q is refused", pattern)
		}
	}
	atoms := []string{"a", "b", "é", ".", "[ab]", "[^a]", "(a|b)", "(?i:k)", "(ab|a)", "^", "$", "|", "(b|)", "\\w", "\\n", "😀?"}
	after := []string{"", "", "", "*", "+", "?", "{2}", "{0,3}", "{1,}", "*?", "{3,90}"}
	done := 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 4))
		pattern := ""
		for range 1 + r.IntN(5) {
			pattern += atoms[r.IntN(len(atoms))] + after[r.IntN(len(after))]
		}
		more := texts
		for range 40 {
			text := ""
			for range r.IntN(8) {
				text += []string{"a", "b", "ab", "é", "k", "\n", "😀"}[r.IntN(7)]
			}
			more = append(more, text)
		}
		if compareRegexp(t, pattern, more) {
			done++
		}
	}
	if done < 700 {
		t.Errorf("only %d of 1500 random patterns compile", done)
	}
}

func TestRegexpsThatAreRefused(t *testing.T) {
	for _, pattern := range []string{`\bword\b`, `\B`, `(?m)^a$`, `a^b`, `a$b`, `(a$)+`, `(^a)*`, `a*^b`} {
		if _, err := ParseRegexp(pattern); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	for _, pattern := range []string{`(`, `a{1001}`, `(?=a)`, `\1`, `[b-a]`} {
		if _, err := ParseRegexp(pattern); err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

// The size of an expression is checked before parsing, because the parser can't be interrupted:
// 8 MiB of anchors would take hours. Errors do not quote all of a long expression.
func TestLongRegexps(t *testing.T) {
	for _, part := range []string{"^", "(", "a?", "(a|", `\pL`} {
		most := strings.Repeat(part, maxPattern/len(part))
		if _, err := ParseRegexp(most); errors.Is(err, ErrTooLarge) || err != nil && len(err.Error()) > 400 {
			t.Errorf("%d bytes of %q: %.1000v", len(most), part, err)
		}
		if _, err := ParseRegexp(strings.Repeat(part, 8<<20/len(part))); !errors.Is(err, ErrTooLarge) {
			t.Errorf("8 MiB of %q: %.1000v", part, err)
		}
	}
}

func FuzzRegexp(f *testing.F) {
	f.Add(`(a|b)*c{2,70}`, "abcc", "ab")
	f.Add(`(?i)stra(ß|ss)e|\d+`, "STRASSE", "12")
	f.Fuzz(func(t *testing.T, pattern, a, b string) {
		if len(pattern) < 60 && len(a)+len(b) < 200 {
			compareRegexp(t, pattern, []string{a, b, a + b, b + a, a + a, ""})
		}
	})
}
