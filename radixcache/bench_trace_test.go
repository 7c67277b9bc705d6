package radixcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// load makes requests of the shape that prefix caches are compared on: chat
// (turns of interleaved conversations under shared system prompts), fewshot
// (long shared beginnings, short tails), tree (branches from recent nodes),
// unique (nothing shared).
func load(kind string, requests int) [][]kv.Token {
	rng := rand.New(rand.NewPCG(7, 11))
	text := func(from []kv.Token, lo, hi int) []kv.Token {
		out := slices.Clone(from)
		for range lo + rng.IntN(hi-lo+1) {
			out = append(out, kv.Token(rng.IntN(128000)))
		}
		return out
	}
	zipf := rand.NewZipf(rng, 1.2, 1, 63)
	var starts, all [][]kv.Token
	for range 64 {
		starts = append(starts, text(nil, 256, 2048))
	}
	open := make([][]kv.Token, 256)
	for len(all) < requests {
		switch kind {
		case "chat":
			i := rng.IntN(len(open))
			if open[i] == nil {
				open[i] = starts[zipf.Uint64()]
			}
			open[i] = text(open[i], 64, 1024)
			all = append(all, open[i])
			if rng.IntN(5) == 0 || len(open[i]) > 16384 {
				open[i] = nil
			}
		case "fewshot":
			shot := slices.Concat(starts[2*rng.IntN(8)], starts[1], starts[3])
			all = append(all, text(shot, 64, 256))
		case "tree":
			from := starts[0]
			if len(all) > 0 {
				recent := all[max(0, len(all)-512):]
				if at := recent[rng.IntN(len(recent))]; len(at) <= 8192 {
					from = at
				}
			}
			all = append(all, text(from, 16, 192))
		case "unique":
			all = append(all, text(nil, 256, 4096))
		}
	}
	return all
}

// cost is the time that the calls of a replay took.
type cost struct{ match, pages, pin, extend, unpin, flat time.Duration }

// BenchmarkTrace replays each load into an empty cache, as a scheduler does: match, copy
// the pages, pin, extend, unpin. One iteration is a whole replay; the figures are per
// request. memcmp compares the matched runs as flat copies, in the same order and equally
// out of cache.
func BenchmarkTrace(b *testing.B) {
	for _, kind := range []string{"chat", "fewshot", "tree", "unique"} {
		all := load(kind, 10000)
		for _, page := range []int{1, 16} {
			b.Run(fmt.Sprintf("load=%s/page=%d", kind, page), func(b *testing.B) {
				var sum cost
				for b.Loop() {
					replayTimed(b, all, page, &sum)
				}
				per := func(d time.Duration, name string) {
					b.ReportMetric(float64(d.Nanoseconds())/float64(b.N*len(all)), name+"-ns/req")
				}
				per(sum.match, "match")
				per(sum.pages, "pages")
				per(sum.pin, "pin")
				per(sum.extend, "extend")
				per(sum.unpin, "unpin")
				b.ReportMetric(float64(sum.match)/float64(max(1, sum.flat)), "match/memcmp")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func replayTimed(b *testing.B, all [][]kv.Token, page int, sum *cost) {
	c := newCache(b, Config{PageTokens: page})
	next := kv.PageID(0)
	var pages, freed []kv.PageID
	copies, shared := make([][]kv.Token, len(all)), make([]int, len(all))
	for i, tokens := range all {
		key := Key{Tokens: tokens}
		t0 := time.Now()
		m := c.Match(key)
		t1 := time.Now()
		pages = c.AppendPages(m, pages[:0])
		t2 := time.Now()
		handle := c.Pin(m)
		t3 := time.Now()
		shared[i] = m.Tokens
		for len(pages) < kv.CeilPages(len(tokens), page) {
			pages = append(pages, next)
			next++
		}
		t4 := time.Now()
		handle, freed = c.Extend(handle, key, pages, freed[:0])
		t5 := time.Now()
		c.Unpin(handle)
		t6 := time.Now()
		sum.match += t1.Sub(t0)
		sum.pages += t2.Sub(t1)
		sum.pin += t3.Sub(t2)
		sum.extend += t5.Sub(t4)
		sum.unpin += t6.Sub(t5)
	}
	for i, tokens := range all {
		copies[i] = slices.Clone(tokens[:shared[i]])
	}
	t0 := time.Now()
	for i, tokens := range all {
		if wide.CommonPrefix(copies[i], tokens) != shared[i] {
			b.Fatal("copies differ")
		}
	}
	sum.flat += time.Since(t0)
}
