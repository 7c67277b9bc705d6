package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// mergeNaive merges by the definition: it finds the pair of lowest rank, merges the pair's
// leftmost occurrence, and repeats this until no pair merges.
func (t *Tokenizer) mergeNaive(piece string) []kv.Token {
	ids := t.spell(nil, piece)
	for {
		best := merge{rank: noMerge}
		at := 0
		for i := range len(ids) - 1 {
			if m := t.lookup(ids[i], ids[i+1]); m.rank < best.rank {
				best, at = m, i
			}
		}
		if best.rank == noMerge {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, best.id)
	}
}

// randomText returns n random parts that splitters and merges treat specially; with invalid also
// bytes that are not UTF-8.
func randomText(rng *rand.Rand, n int, invalid bool) string {
	parts := []string{
		"a", "e", "th", "in", "S", "'s", "'LL", "'", " ", " ", "  ", "\n", "\r\n", "\t", "7", "12", ".", "-", "é", "e\u0301",
		"中", "あ", "한", "ع", "क", "्", "🙂", "\u200d", "\u00a0", "\u3000", "Ⅷ", "ſ", "<|eot_id|>", "<|eot", "the Light", "\x00",
	}
	if invalid {
		parts = append(parts, "\xff", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x99", "\xed\xa0\x80", "\xc0\x80")
	}
	var b strings.Builder
	for range n {
		b.WriteString(parts[rng.IntN(len(parts))])
	}
	return b.String()
}

func TestMergeMatchesNaive(t *testing.T) {
	tok := trained(t)
	rng := rand.New(rand.NewPCG(1, 1730))
	text := opticks.Text()
	for i := range 3000 {
		n := 1 + rng.IntN(100)
		piece := randomText(rng, n, true)
		switch i % 3 {
		case 1:
			at := rng.IntN(len(text) - n)
			piece = text[at : at+n]
		case 2:
			piece = strings.Repeat("in"[:1+rng.IntN(2)], n)
		}
		want := tok.mergeNaive(piece)
		if got := tok.mergeLong(nil, piece, &scratch{}); !slices.Equal(got, want) {
			t.Fatalf("mergeLong(%q) = %v, want %v", piece, got, want)
		}
		piece = piece[:min(len(piece), maxShortPiece)]
		want = tok.mergeNaive(piece)
		if got := tok.mergeShort(nil, piece); !slices.Equal(got, want) {
			t.Fatalf("mergeShort(%q) = %v, want %v", piece, got, want)
		}
	}
}

// Looking up whole tokens must give the same tokens as merging.
func TestWholeTokensAreWhatMergingGives(t *testing.T) {
	tok := trained(t)
	if len(tok.whole) < 1000 {
		t.Errorf("only %d tokens are whole", len(tok.whole))
	}
	for piece, id := range tok.whole {
		if got := tok.mergeNaive(piece); len(got) != 1 || got[0] != id {
			t.Errorf("%q is token %d, but merges to %v", piece, id, got)
		}
	}
}

func TestPieceLengthsAroundTheLimit(t *testing.T) {
	tok := trained(t)
	for n := maxShortPiece - 2; n <= maxShortPiece+2; n++ {
		piece := strings.Repeat("the", n)[:n]
		if got, want := tok.Encode(nil, piece), tok.mergeNaive(piece); !slices.Equal(got, want) {
			t.Errorf("%d bytes: %v, want %v", n, got, want)
		}
	}
}

// A merge of quadratic time would take minutes here.
func TestLongPieces(t *testing.T) {
	tok := trained(t)
	for _, unit := range []string{"a", "in", "Light", "中", "\n", " ", "!", "🙂", "\xff", "<", "<|eot"} {
		text := strings.Repeat(unit, 300_000/len(unit))
		ids := tok.Encode(nil, text)
		if string(tok.Decode(nil, ids, false)) != text {
			t.Errorf("%q repeated does not come back", unit)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	g, base := readGolden(t)
	rng := rand.New(rand.NewPCG(2, 1730))
	for _, v := range g.Variants {
		if v.Name == "added" || v.Patch["normalizer"] != nil {
			continue // these files absorb spaces or change text
		}
		tok := v.open(t, base)
		for range 300 {
			text := randomText(rng, rng.IntN(40), true)
			if got := string(tok.Decode(nil, tok.Encode(nil, text), false)); got != text {
				t.Fatalf("%s: %q comes back as %q", v.Name, text, got)
			}
		}
	}
	tok := trained(t)
	all := tok.Encode(nil, opticks.Text())
	if string(tok.Decode(nil, all, true)) != opticks.Text() {
		t.Error("decoding does not restore the book")
	}
	if len(all) > len(opticks.Text())/3 {
		t.Errorf("%d tokens for %d bytes: hardly compressed", len(all), len(opticks.Text()))
	}
}

func FuzzRoundTrip(f *testing.F) {
	tok := trained(f)
	for _, s := range []string{"", "can't\n\t\n 123", "\xff\xfe<|eot_id|>", "中文 🙂", strings.Repeat("ab", 50)} {
		f.Add(s)
	}
	var patterns []*pattern
	for _, expr := range familyPatterns {
		p, err := tryPattern(expr)
		if err != nil {
			f.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(nil, text)
		if got := string(tok.Decode(nil, ids, false)); got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
		for i, p := range patterns {
			sum := 0
			for _, at := range p.allSpans(nil, text) {
				if at.hi <= at.lo {
					t.Fatalf("%s: empty piece in %q", familyPatterns[i], text)
				}
				sum += at.hi - at.lo
			}
			if sum != len(text) {
				t.Errorf("%s: pieces of %q are %d bytes", familyPatterns[i], text, sum)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","a"]]}}`), []byte(`{"bos_token":{"content":"a"}}`))
	f.Add(edit(f, nil), []byte(`{}`))
	f.Fuzz(func(t *testing.T, file, config []byte) {
		if tok, err := parse(file, config); err == nil {
			tok.EncodePrompt(nil, "any text\n")
		}
	})
}

func TestEncodeAppends(t *testing.T) {
	tok := trained(t)
	dst := []kv.Token{7, 8}
	if got := tok.Encode(dst, "a"); !slices.Equal(got, []kv.Token{7, 8, 64}) {
		t.Errorf("%v", got)
	}
	if got := tok.Encode(nil, ""); len(got) != 0 {
		t.Errorf("the empty text is %v", got)
	}
	if got := string(tok.Decode([]byte("x"), []kv.Token{64, 1498, 99999, 1<<32 - 1}, false)); got != "xa<|eot_id|>" {
		t.Errorf("decoded %q", got)
	}
	if got := string(tok.Decode(nil, []kv.Token{1498, 64}, true)); got != "a" {
		t.Errorf("decoded without special tokens %q", got)
	}
}

func TestEncodeDoesNotAllocate(t *testing.T) {
	tok := trained(t)
	text := opticks.Text()[:4000] + "<|eot_id|> isn't 中文"
	dst := tok.Encode(nil, text)
	if n := testing.AllocsPerRun(20, func() { dst = tok.Encode(dst[:0], text) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// With -race this shows that encoding writes no memory that goroutines share.
func TestConcurrentUse(t *testing.T) {
	tok := trained(t)
	text := opticks.Text()[:20_000]
	want := tok.Encode(nil, text)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := tok.Encode(nil, text); !slices.Equal(got, want) {
				t.Error("encodings differ between goroutines")
			}
			if stream(tok, want) != text {
				t.Error("decodings differ between goroutines")
			}
		})
	}
	wg.Wait()
}

func BenchmarkEncode(b *testing.B) {
	f := readFamilies(b)
	text := opticks.Text()
	for _, name := range []string{"llama3", "qwen2", "gpt2", "tekken", "mistral"} {
		tok := f.open(b, f.find(b, name))
		encoder := tok.NewEncoder()
		byEncoder := func(dst []kv.Token, text string) []kv.Token { return encodedBy(encoder, dst, text) }
		for by, encode := range map[string]func([]kv.Token, string) []kv.Token{"Tokenizer": tok.Encode, "Encoder": byEncoder} {
			b.Run("family="+name+"/by="+by, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				var dst []kv.Token
				for b.Loop() {
					dst = encode(dst[:0], text)
				}
			})
		}
	}
}

func BenchmarkEncodeLongPiece(b *testing.B) {
	tok := trained(b)
	text := strings.Repeat("Light", 20_000)
	b.SetBytes(int64(len(text)))
	var dst []kv.Token
	for b.Loop() {
		dst = tok.Encode(dst[:0], text)
	}
}

func BenchmarkSplit(b *testing.B) {
	text := opticks.Text()
	for name, expr := range map[string]string{"llama3": PatternLlama3, "gpt2": PatternGPT2, "o200k": PatternO200k, "deepseek3": PatternsDeepSeek3()[2]} {
		p, err := tryPattern(expr)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("splitter="+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p.spans(text, &scratch{}, func(span) bool { return true })
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		trained(b)
	}
}
