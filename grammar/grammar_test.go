package grammar

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

var grammars = flag.Uint64("grammars", 60, "how many random grammars TestMasksMatchRules tries")

func vocabularyOf(tokens []string) *Vocabulary {
	return NewVocabulary(len(tokens), func(t kv.Token) []byte { return []byte(tokens[t]) })
}

// randomTokens returns a random vocabulary: each byte of the variable pieces, some concatenated
// pieces, parts of runes with their neighbours, duplicates, and tokens without bytes.
func randomTokens(r *rand.Rand) []string {
	tokens := []string{"", ""}
	for b := range 256 {
		for _, p := range pieces {
			if r.IntN(12) != 0 && len(p) > 0 && p[r.IntN(len(p))] == byte(b) {
				tokens = append(tokens, string([]byte{byte(b)}))
				break
			}
		}
	}
	for range 60 {
		text := ""
		for range 1 + r.IntN(4) {
			text += pieces[r.IntN(len(pieces))]
		}
		from := r.IntN(len(text))
		tokens = append(tokens, text[from:from+1+r.IntN(len(text)-from)])
	}
	tokens = append(tokens, "aaaaaaaaaaaaaaaaaaaa", "aaaaaaaab", "aabaab", "bb", "aaaaaaaa", "abababab", "aaaa", "", tokens[len(tokens)/2])
	r.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
	return tokens
}

// compile compiles rules by calls of Run with the argument work.
func compile(v *Vocabulary, rules Rules, limits Limits, work int) (*Grammar, error) {
	c, err := NewCompiler(v, rules, limits)
	if err != nil {
		return nil, err
	}
	for {
		done, err := c.Run(work)
		if err != nil {
			return nil, err
		}
		if done {
			return c.Grammar(), nil
		}
	}
}

func has(mask []uint64, t int) bool { return mask[t/64]>>(t%64)&1 != 0 }

// compare makes rules, tokens and limits from seed and plays three random outputs. Before each
// token of an output it compares every token's mask bit with the oracle. It returns false if the
// rules are refused.
func compare(t testing.TB, seed uint64) bool {
	r := rand.New(rand.NewPCG(seed, 1))
	rules := randomRules(r)
	if seed%2 == 1 {
		rules = countedRules(r)
	}
	tokens := randomTokens(r)
	v := vocabularyOf(tokens)
	limits := Limits{Memo: 1 << (8 + r.IntN(16)), unroll: []int{1, 8, 64}[r.IntN(3)], beyond: []int{1, 30, beyondWork}[r.IntN(3)], slack: []int{-1 << 20, 256, 256}[r.IntN(3)]}
	g, err := compile(v, rules, limits, 1+r.IntN(1000))
	if err != nil {
		if !errors.Is(err, ErrNothing) && !errors.Is(err, ErrInvalid) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		return false
	}
	o := newOracle(rules, tokens)
	masks := map[uint64][]uint64{} // by State
	reused := g.NewMatcher()
	for range 3 {
		m := g.NewMatcher()
		text := ""
		for step := 0; ; step++ {
			where := fmt.Sprintf("seed %d after %q", seed, text)
			compareHere(t, where, o, m, tokens, text)
			var allowed []int
			mask := make([]uint64, v.words())
			m.Mask(mask)
			if was, known := masks[m.State()]; known && !slices.Equal(was, mask) {
				t.Fatalf("%s: the mask of state %#x is %x, was %x", where, m.State(), mask, was)
			}
			masks[m.State()] = mask
			for i := range tokens {
				if has(mask, i) {
					allowed = append(allowed, i)
				}
			}
			if len(allowed) == 0 || step == 8 || len(text) > 40 {
				break
			}
			next := allowed[r.IntN(len(allowed))]
			twin := m.Clone()
			if step%2 == 1 {
				reused.CopyFrom(m)
				twin = reused
			}
			if !m.Accept(kv.Token(next)) && !g.overflow {
				t.Fatalf("%s: token %q is in the mask and not accepted", where, tokens[next])
			}
			compareHere(t, where+" (clone)", o, twin, tokens, text)
			text += tokens[next]
		}
	}
	return true
}

func compareHere(t testing.TB, where string, o *oracle, m *Matcher, tokens []string, text string) {
	t.Helper()
	word, _ := o.ask(text)
	if m.g.overflow { // stacks were dropped: fewer tokens may be allowed
		return
	}
	if m.CanEnd() != word {
		t.Fatalf("%s: CanEnd %v", where, m.CanEnd())
	}
	mask := make([]uint64, m.g.v.words())
	for i := range mask {
		mask[i] = 0x5555 // to be overwritten
	}
	m.Mask(mask)
	for i, token := range tokens {
		want := false
		if token != "" {
			_, want = o.ask(text + token)
		}
		if m.g.overflow {
			return
		}
		if has(mask, i) != want {
			t.Fatalf("%s: mask has %q: %v", where, token, !want)
		}
		twin := m.Clone()
		if twin.Accept(kv.Token(i)) != want && !m.g.overflow {
			t.Fatalf("%s: accepted %q: %v", where, token, !want)
		}
		if want {
			continue
		}
		if twin.CanEnd() != word || twin.MustEnd() != m.MustEnd() {
			t.Fatalf("%s: a refused token left a trace", where)
		}
	}
	for i := len(tokens); i < 64*len(mask); i++ {
		if has(mask, i) {
			t.Fatalf("%s: mask has token %d of %d", where, i, len(tokens))
		}
	}
	if m.MustEnd() {
		for b := range 256 {
			if _, prefix := o.ask(text + string([]byte{byte(b)})); prefix {
				t.Fatalf("%s: MustEnd, and %#x may follow", where, b)
			}
		}
	}
}

// The compiler knows the bytes that no token has. A text that can only continue with such a
// byte is refused from its beginning; it must not end in a mask without tokens.
func TestBytesWithoutTokens(t *testing.T) {
	tokens := []string{"a", "b", "", "ab", "\xc3", "\xa9", "é", "\xf0", "\x9f"}
	for _, tc := range []struct {
		rules Rules
		want  []string // tokens of the first mask; nil if no text matches
	}{
		{Rules{either(lit("a\x04"), lit("b"))}, []string{"b"}},
		{Rules{seq(lit("a"), either(lit("\x04"), lit("b")))}, []string{"a", "ab"}},
		{Rules{seq(lit("a"), times(runes(0, 0x1f), 0, 3))}, []string{"a"}},
		{Rules{seq(lit("a"), times(runes(0, 0x1f), 1, 3))}, nil},
		{Rules{either(lit("😀"), lit("é"))}, []string{"\xc3", "é"}},
		{Rules{runes(0x1f600, 0x1f64f)}, nil},
		{Rules{seq(lit("a"), runes(0xe0, 0xff))}, []string{"a"}},
		{Rules{either(lit("b"), seq(lit("a"), ref(1))), either(lit("\x06"), seq(lit("a"), ref(1)))}, []string{"b"}},
		{Rules{either(lit("b"), times(lit("a\xff"), 200, 300))}, []string{"b"}},
	} {
		v := vocabularyOf(tokens)
		g, err := compile(v, tc.rules, Limits{}, 1000)
		if tc.want == nil {
			if !errors.Is(err, ErrNothing) || !strings.Contains(err.Error(), "tokens have the bytes for") {
				t.Errorf("%v: error %v, want %v for lack of bytes", tc.rules, err, ErrNothing)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", tc.rules, err)
			continue
		}
		mask := make([]uint64, v.words())
		g.NewMatcher().Mask(mask)
		for i, token := range tokens {
			if has(mask, i) != slices.Contains(tc.want, token) {
				t.Errorf("%v: mask has %q: %v", tc.rules, token, has(mask, i))
			}
		}
	}
}

func TestMasksMatchRules(t *testing.T) {
	tried, compiled := 0, 0
	seeds := *grammars
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		tried++
		if compare(t, seed) {
			compiled++
		}
	}
	t.Logf("%d of %d grammars compiled", compiled, tried)
	if compiled < tried/2 {
		t.Fatalf("only %d of %d random grammars compile", compiled, tried)
	}
}

func FuzzGrammar(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { compare(t, seed) })
}
