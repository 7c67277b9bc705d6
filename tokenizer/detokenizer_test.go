package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// spell returns the tokens of the single bytes of s.
func spell(tok *Tokenizer, s string) []kv.Token {
	var ids []kv.Token
	for i := range len(s) {
		ids = append(ids, tok.bytes[s[i]])
	}
	return ids
}

// splitting returns a tokenizer whose tokens are the given strings.
func splitting(tokens []string) (*Tokenizer, []kv.Token) {
	t := &Tokenizer{vocabulary: vocabulary{text: tokens, special: make([]bool, len(tokens))}}
	ids := make([]kv.Token, len(tokens))
	for i := range ids {
		ids[i] = kv.Token(i)
	}
	return t, ids
}

// checkStream decodes ids as a stream and checks that the text equals that of Decode. At each
// token, the stream must return only complete runes, and all text that is certain.
func checkStream(t *testing.T, tok *Tokenizer, ids []kv.Token) {
	t.Helper()
	d := tok.NewDetokenizer()
	var out []byte
	for i, id := range ids {
		n := len(out)
		out = d.Next(out, id)
		if !utf8.Valid(out[n:]) {
			t.Fatalf("%v: token %d gives %q", ids, i, out[n:])
		}
		if d.n > 3 || d.n > 0 && utf8.FullRune(d.buf[:d.n]) {
			t.Fatalf("%v: token %d leaves the tail %q", ids, i, d.buf[:d.n])
		}
		if sure := toValid(append(tok.Decode(nil, ids[:i+1], true), "x"...)); d.n == 0 && string(out)+"x" != sure {
			t.Fatalf("%v: %q after token %d, want %q", ids, out, i, sure)
		}
	}
	out = d.Flush(out)
	if want := toValid(tok.Decode(nil, ids, true)); string(out) != want {
		t.Fatalf("%v: streamed %q, want %q", ids, out, want)
	}
	if more := d.Flush(nil); more != nil {
		t.Fatalf("%v: a second flush gives %q", ids, more)
	}
}

func TestStreamUnderEverySplit(t *testing.T) {
	for _, s := range []string{
		"aé中🙂", "\xe2\x82\xacx", "\xe2\x82x", "\xf0\x9f\x99", "\xf0\x9fA\x99\x82", "\xc3\xc3\xa9", "\xff\xfe\xfd", "\x80\x80a",
		"\xed\xa0\x80\xed\xb0\x80", "\xf4\x90\x80\x80", "\xf4\x8f\xbf\xbf", "\xe0\x80\x80", "\xc0\xaf", "\xef\xbf\xbd\xef\xbf", "\xf0\x90\xe2\x82\xac",
	} {
		for mask := range 1 << (len(s) - 1) {
			var tokens []string
			from := 0
			for i := 1; i <= len(s); i++ {
				if i == len(s) || mask>>(i-1)&1 == 1 {
					tokens = append(tokens, s[from:i])
					from = i
				}
			}
			tok, ids := splitting(tokens)
			checkStream(t, tok, ids)
		}
	}
}

func TestStreamOfRandomTokens(t *testing.T) {
	tok := trained(t)
	rng := rand.New(rand.NewPCG(3, 1730))
	for range 2000 {
		ids := make([]kv.Token, rng.IntN(30))
		for i := range ids {
			ids[i] = kv.Token(rng.IntN(tok.VocabSize() + 3))
			if rng.IntN(3) > 0 {
				ids[i] = kv.Token(rng.IntN(256)) // single bytes, mostly invalid UTF-8
			}
		}
		checkStream(t, tok, ids)
	}
}

func FuzzStream(f *testing.F) {
	f.Add("aé中🙂", uint64(5))
	f.Add("\xe2\x82\xff\xf0\x9f", uint64(0))
	f.Fuzz(func(t *testing.T, s string, cuts uint64) {
		var tokens []string
		for s != "" {
			n := min(len(s), 1+int(cuts&3))
			cuts = cuts>>2 | cuts<<62
			tokens, s = append(tokens, s[:n]), s[n:]
		}
		tok, ids := splitting(tokens)
		checkStream(t, tok, ids)
	})
}

func TestSpecialTokensDoNotEndARune(t *testing.T) {
	tok := trained(t)
	euro := spell(tok, "€")
	eot, _ := tok.AddedToken("<|eot_id|>")
	d := tok.NewDetokenizer()
	var got []string
	for _, id := range []kv.Token{euro[0], eot, euro[1], 1_000_000, euro[2], eot} {
		got = append(got, string(d.Next(nil, id)))
	}
	if s := strings.Join(got, "|"); s != "||||€|" {
		t.Errorf("got %q", s)
	}
}

// U+FFFD is returned as soon as a rune can no longer be completed, and Flush resets the
// detokenizer.
func TestReplacementComesEarly(t *testing.T) {
	tok := trained(t)
	d := tok.NewDetokenizer()
	for _, tc := range []struct {
		token byte
		want  string
	}{{0xF0, ""}, {0x9F, ""}, {'a', "\uFFFDa"}, {0xFF, "\uFFFD"}, {0xE2, ""}, {0xE2, "\uFFFD"}, {0x82, ""}} {
		if got := string(d.Next(nil, tok.bytes[tc.token])); got != tc.want {
			t.Errorf("after %#x: %q, want %q", tc.token, got, tc.want)
		}
	}
	if got := string(d.Flush([]byte("x"))); got != "x\uFFFD" {
		t.Errorf("flush: %q", got)
	}
	if got := string(d.Next(nil, tok.bytes['b'])); got != "b" {
		t.Errorf("after the flush: %q", got)
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	tok := trained(t)
	ids := append(tok.Encode(nil, opticks.Text()[:2000]+"中文 🙂<|eot_id|>"), spell(tok, "é\xff\xe2🙂\xf0")...)
	d := tok.NewDetokenizer()
	dst := make([]byte, 0, 64)
	n := testing.AllocsPerRun(20, func() {
		for _, id := range ids {
			dst = d.Next(dst[:0], id)
		}
		dst = d.Flush(dst[:0])
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkDetokenizerNext(b *testing.B) {
	tok := trained(b)
	ids := tok.Encode(nil, opticks.Text())
	d := tok.NewDetokenizer()
	dst := make([]byte, 0, 64)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		dst = d.Next(dst[:0], ids[i])
		if i++; i == len(ids) {
			i = 0
		}
	}
}
