package radixcache

import (
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

// BenchmarkTrace replays each load into an empty cache: match, insert. One
// iteration is a whole replay; the figures are per request. memcmp compares
// the matched runs as flat copies, in the same order and as cold.
func BenchmarkTrace(b *testing.B) {
	for _, kind := range []string{"chat", "fewshot", "tree", "unique"} {
		all := load(kind, 10000)
		for _, page := range []int{1, 16} {
			b.Run("load="+kind+"/page="+string("1 16"[page/8:][:1+page/16]), func(b *testing.B) {
				var match, insert, flat time.Duration
				for b.Loop() {
					m, i, f := replayTimed(b, all, page)
					match, insert, flat = match+m, insert+i, flat+f
				}
				per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N*len(all)) }
				b.ReportMetric(per(match), "match-ns/req")
				b.ReportMetric(per(insert), "insert-ns/req")
				b.ReportMetric(float64(match)/float64(max(1, flat)), "match/memcmp")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func replayTimed(b *testing.B, all [][]kv.Token, page int) (match, insert, flat time.Duration) {
	c := newCache(b, Config{PageTokens: page})
	next := kv.PageID(0)
	var pages, freed []kv.PageID
	copies, shared := make([][]kv.Token, len(all)), make([]int, len(all))
	for i, tokens := range all {
		t0 := time.Now()
		m := c.Match(kv.Namespace{}, tokens, pages[:0])
		t1 := time.Now()
		pages, shared[i] = m.Pages, m.Tokens
		for len(pages) < kv.CeilPages(len(tokens), page) {
			pages = append(pages, next)
			next++
		}
		t2 := time.Now()
		_, freed = c.Insert(kv.Namespace{}, tokens, pages, freed[:0])
		match, insert = match+t1.Sub(t0), insert+time.Since(t2)
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
	return match, insert, time.Since(t0)
}
