package missratio

import (
	"math"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// twin keeps the stack itself: the prefixes, the most recent first.
type twin struct {
	stack     []string
	distances []int
	tokens    int
}

func (w *twin) access(request string) {
	w.tokens += len(request)
	for n := 1; n <= len(request); n++ {
		for at, prefix := range w.stack {
			if prefix == request[:n] {
				w.distances = append(w.distances, at+1)
			}
		}
	}
	for n := len(request); n > 0; n-- {
		at := 0
		for at < len(w.stack) && w.stack[at] != request[:n] {
			at++
		}
		if at == len(w.stack) {
			w.stack = append(w.stack, "")
		}
		copy(w.stack[1:at+1], w.stack[:at])
		w.stack[0] = request[:n]
	}
}

func (w *twin) hits(capacity int) int {
	n := 0
	for _, d := range w.distances {
		if d <= capacity {
			n++
		}
	}
	return n
}

// FuzzExact: bytes are requests of two-bit tokens, a byte of 4 and more ends one.
// With all blocks sampled and a token in each, the curve is the twin's.
func FuzzExact(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x09\x00\x01\x03\x09\x00\x01\x02\x03"), uint8(0))
	f.Add([]byte("\x01\x01\x01\x01\x01\x09\x01\x01\x09\x01\x01\x01\x01\x01\x01\x09\x02\x09\x01\x01\x01"), uint8(1))
	f.Add([]byte("\x00\x01\x02\x03\x00\x09\x00\x01\x02\x03\x01\x01\x09\x00\x01\x02\x03\x00\x02\x09\x03\x03\x09\x00"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, shape uint8) {
		if len(data) > 600 {
			return
		}
		block := 1 + int(shape%4)
		c := newCurve(config{blockTokens: block, samples: 1024, maxTokens: 1 << 12})
		var w twin
		requests := 0
		for lo, hi := 0, 0; hi <= len(data); hi++ {
			if hi < len(data) && data[hi] < 4 {
				continue
			}
			var tokens []kv.Token
			for _, b := range data[lo:hi] {
				tokens = append(tokens, kv.Token(b))
			}
			w.access(string(data[lo:hi]))
			c.Access(kv.Namespace{LoRA: "l"}, tokens)
			requests++
			lo = hi + 1
		}
		if w.tokens == 0 {
			return
		}
		if c.take.base != everything {
			t.Fatal("not all blocks are sampled")
		}
		for capacity := 1; capacity <= 1<<12; capacity = edge(bucketOf(capacity) + 1) {
			got := c.rate(capacity) * float64(w.tokens)
			if want := float64(w.hits(capacity)); block == 1 && math.Abs(got-want) > 1e-6 {
				t.Fatalf("capacity %d: %v hits, want %v", capacity, got, want)
			}
		}
		all := c.rate(1<<12) * float64(w.tokens)
		if want := float64(w.hits(1 << 12)); math.Abs(all-want) > float64(requests*block) {
			t.Fatalf("blocks of %d: %v hits, want %v within a block for each of %d requests", block, all, want, requests)
		}
		checkCurve(t, c)
	})
}

// FuzzSparse: whatever comes, with hardly any samples, nothing breaks.
func FuzzSparse(f *testing.F) {
	f.Add(uint64(1), uint16(10000))
	f.Add(uint64(2), uint16(300))
	f.Fuzz(func(t *testing.T, seed uint64, limit uint16) {
		for _, shape := range []string{"chat", "fewshot", "tree", "unique"} {
			c := play(config{blockTokens: 1 + int(seed%40), samples: MinSamples, maxTokens: 1 + int(limit)}, generate(shape, 300, seed))
			checkCurve(t, c)
		}
	})
}
