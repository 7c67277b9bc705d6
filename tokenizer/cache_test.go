package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

func TestEncoderMatchesTokenizer(t *testing.T) {
	f := readFamilies(t)
	rng := rand.New(rand.NewPCG(5, 1730))
	for _, name := range []string{"llama3", "tekken", "mistral", "mistral unknown"} {
		tok := f.open(t, f.find(t, name))
		e := tok.NewEncoder()
		for range 1500 {
			text := randomText(rng, 1+rng.IntN(60), true)
			got, err := e.EncodeWith(nil, text, Options{Prompt: true})
			if want := tok.EncodePrompt(nil, text); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s: %q: %v, want %v (%v)", name, text, got, want, err)
			}
		}
	}
}

// Pieces with lengths and numbers of tokens at, below and above the limits of a slot are each
// encoded twice.
func TestCacheAtItsLimits(t *testing.T) {
	tok := trained(t)
	e := tok.NewEncoder()
	for n := cachedBytes - 2; n <= cachedBytes+2; n++ {
		for _, piece := range []string{strings.Repeat("thing", n)[:n], strings.Repeat("xq", n)[:n]} {
			want := tok.mergeNaive(piece)
			for range 2 {
				if got := encodedBy(e, nil, piece); !slices.Equal(got, want) {
					t.Errorf("%q: %v, want %v", piece, got, want)
				}
			}
		}
	}
	for n := cachedIDs - 1; n <= cachedIDs+1; n++ {
		piece := strings.Repeat("!", n)[:n-1] + "\xff"
		for range 2 {
			if got, want := e.s.encode(nil, tok, piece), tok.mergeNaive(piece); !slices.Equal(got, want) {
				t.Errorf("%q: %v, want %v", piece, got, want)
			}
		}
	}
}

// Pieces that consist of zero bytes, or end in zero bytes, must not be confused with shorter
// pieces.
func TestCacheDistinguishesZeros(t *testing.T) {
	tok := trained(t)
	s := scratch{cache: pieceCache{make([]cacheSlot, cacheSlots)}}
	for n := 1; n <= 9; n++ {
		for _, piece := range []string{strings.Repeat("\x00", n), "q" + strings.Repeat("\x00", n)} {
			if got, want := s.encode(nil, tok, piece), tok.mergeNaive(piece); !slices.Equal(got, want) {
				t.Errorf("%q: %v, want %v", piece, got, want)
			}
		}
	}
}

// Two pieces with the same slot evict each other, and both are encoded correctly.
func TestCacheSlotsAreShared(t *testing.T) {
	tok := trained(t)
	s := scratch{cache: pieceCache{make([]cacheSlot, cacheSlots)}}
	slots := map[*cacheSlot]string{}
	for i := range 20 * cacheSlots {
		piece := "k" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + string(rune('a'+i/17576))
		slot := s.cache.slot(keyOf(piece))
		other, taken := slots[slot]
		slots[slot] = piece
		if !taken {
			continue
		}
		for _, p := range []string{piece, other, piece} {
			if got, want := s.encode(nil, tok, p), tok.mergeNaive(p); !slices.Equal(got, want) {
				t.Fatalf("%q next to %q: %v, want %v", piece, other, got, want)
			}
		}
		if i > 3*cacheSlots {
			return
		}
	}
	t.Fatal("no two pieces share a slot")
}

func TestEncodersAllocateNothing(t *testing.T) {
	f := readFamilies(t)
	text := opticks.Text()[:4000] + strings.Repeat("Light", 100) + "<|eot_id|> isn't 中文"
	for _, tc := range []struct {
		family string
		want   float64 // allocations of normalizing the whole text, however many pieces it has
	}{{"llama3", 0}, {"gpt2", 0}, {"tekken", 0}, {"o200k", 0}, {"mistral", 2}} {
		tok := f.open(t, f.find(t, tc.family))
		e := tok.NewEncoder()
		dst := encodedBy(e, nil, text)
		if n := testing.AllocsPerRun(20, func() { dst = encodedBy(e, dst[:0], text) }); n > tc.want {
			t.Errorf("%s: %v allocations by the Encoder, want %v", tc.family, n, tc.want)
		}
		short := opticks.Text()[:4000]
		if n := testing.AllocsPerRun(20, func() { dst = tok.Encode(dst[:0], short) }); n > tc.want {
			t.Errorf("%s: %v allocations, want %v", tc.family, n, tc.want)
		}
	}
}

func TestMergeTableMatchesMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1730))
	for _, n := range []int{0, 1, 7, 8, 9, 1000} {
		table := newMergeTable(n)
		twin := map[pair]merge{}
		for range n {
			p := pairOf(kv.Token(rng.IntN(40)), kv.Token(rng.IntN(40)))
			m := merge{rng.Uint32N(1000), kv.Token(rng.IntN(1000))}
			table.put(p, m)
			twin[p] = m
		}
		pairs := 0
		for _, slot := range table.slots {
			if slot.merge.rank != noMerge {
				pairs++
			}
		}
		if pairs != len(twin) {
			t.Errorf("%d pairs, want %d", pairs, len(twin))
		}
		tok := Tokenizer{merges: table}
		for l := range kv.Token(41) {
			for r := range kv.Token(41) {
				want, ok := twin[pairOf(l, r)]
				if !ok {
					want = merge{rank: noMerge}
				}
				if got := tok.lookup(l, r); got.rank != want.rank || ok && got != want {
					t.Fatalf("%d, %d: %v, want %v", l, r, got, want)
				}
			}
		}
	}
}

// An Encoder keeps the buffers of a long piece, but not those of a very long piece.
func TestEncodersForgetVeryLongPieces(t *testing.T) {
	tok := trained(t)
	e := tok.NewEncoder()
	for _, c := range []struct {
		bytes int
		kept  bool
	}{{1000, true}, {keptPiece, true}, {2 * keptPiece, false}, {1000, true}} {
		piece := strings.Repeat("q", c.bytes)
		if got, want := encodedBy(e, nil, piece), tok.Encode(nil, piece); !slices.Equal(got, want) {
			t.Fatalf("a piece of %d bytes: %d tokens, want %d", c.bytes, len(got), len(want))
		}
		s := &e.s
		size := max(cap(s.ids), cap(s.nodes), cap(s.queue))
		if (size > 0) != c.kept || size > 4*keptPiece {
			t.Errorf("after a piece of %d bytes there is room for %d", c.bytes, size)
		}
	}
}

// encodedBy is Tokenizer.Encode by an Encoder.
func encodedBy(e *Encoder, dst []kv.Token, text string) []kv.Token {
	dst, _ = e.EncodeWith(dst, text, Options{})
	return dst
}
