package jsonschema

import (
	"math/rand"
	"testing"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

// tokens returns a vocabulary of all bytes, and pieces of JSON that are usual in tokenizers.
func tokens() *grammar.Vocabulary {
	var list [][]byte
	for i := range 256 {
		list = append(list, []byte{byte(i)})
	}
	for _, s := range []string{`{"`, `":`, `": `, `",`, `", "`, `"}`, `"}]`, `}}`, `[]`, `{}`, `\"`, `\u`, "\n  ", "\n    ", ", ", "true",
		"false", "null", "ab", "abc", "12", "202", "00", "-0", ".5", "e+", "é", "\xc3", "😀", `"a": `, `"b"`, `a":1,"b`, "kind"} {
		list = append(list, []byte(s))
	}
	return grammar.NewVocabulary(len(list), func(t kv.Token) []byte { return list[t] })
}

// TestCompiled checks that texts written under the masks of the compiled rules are valid.
func TestCompiled(t *testing.T) {
	v := tokens()
	r := rand.New(rand.NewSource(14))
	schemas := append(append([]string(nil), emitted...), exact...)
	for _, c := range readGolden(t).Cases {
		schemas = append(schemas, c.Schema)
	}
	written, ended := 0, 0
	for _, source := range schemas {
		m := compiled(t, v, source)
		schema, err := parse(source)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			written++
			if text, ok := write(t, source, m, v, r); ok {
				ended++
				checkEmitted(t, source, schema, text)
			}
		}
	}
	if ended < written*97/100 { // random texts complete some patterns only after 2000 tokens
		t.Errorf("of %d texts %d came to an end", written, ended)
	}
	for _, c := range readGolden(t).Cases {
		m := compiled(t, v, c.Schema)
		for _, text := range c.Texts {
			m.Reset()
			if match := m.AcceptBytes([]byte(text.Text)) && m.CanEnd(); match != text.Match {
				t.Errorf("%s: compiled, match of %s is %v", c.Schema, text.Text, match)
			}
		}
	}
}

func compiled(t *testing.T, v *grammar.Vocabulary, source string) *grammar.Matcher {
	t.Helper()
	rules, err := Rules([]byte(source), Config{})
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	c, err := grammar.NewCompiler(v, rules, grammar.Limits{})
	for done := false; err == nil && !done; {
		done, err = c.Run(1 << 20)
	}
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return c.Grammar().NewMatcher()
}

// pen writes random tokens that a matcher allows.
type pen struct {
	*testing.T
	m    *grammar.Matcher
	v    *grammar.Vocabulary
	r    *rand.Rand
	mask []uint64
	out  []byte
}

func newPen(t *testing.T, m *grammar.Matcher, v *grammar.Vocabulary, r *rand.Rand) *pen {
	return &pen{T: t, m: m, v: v, r: r, mask: make([]uint64, (v.Size()+63)/64)}
}

// token writes a token: one of closers, unless empty, if the one that is drawn is allowed.
func (p *pen) token(source, closers string) {
	p.Helper()
	p.m.Mask(p.mask)
	var allowed []kv.Token
	for i := range p.v.Size() {
		if p.mask[i/64]>>(i%64)&1 == 1 {
			allowed = append(allowed, kv.Token(i))
		}
	}
	if len(allowed) == 0 {
		p.Fatalf("%s: stuck after %q", source, p.out)
	}
	pick := allowed[p.r.Intn(len(allowed))]
	if closers != "" {
		if c := kv.Token(closers[p.r.Intn(len(closers))]); p.mask[c/64]>>(c%64)&1 == 1 {
			pick = c
		}
	}
	if !p.m.Accept(pick) {
		p.Fatalf("%s: the mask allows %q after %q, Accept does not", source, p.v.Bytes(pick), p.out)
	}
	p.out = append(p.out, p.v.Bytes(pick)...)
}

// write writes random tokens that m allows; after a random number of tokens it prefers those that
// close open brackets and strings. It returns false if the text does not end.
func write(t *testing.T, source string, m *grammar.Matcher, v *grammar.Vocabulary, r *rand.Rand) (string, bool) {
	t.Helper()
	m.Reset()
	p, some := newPen(t, m, v, r), r.Intn(60)
	for n := 0; ; n++ {
		switch {
		case m.MustEnd() || m.CanEnd() && (n > some || r.Intn(4) == 0):
			return string(p.out), true
		case n > 2000:
			return "", false
		case n > some && r.Intn(4) > 0:
			p.token(source, `}]"n0 `)
		default:
			p.token(source, "")
		}
	}
}
