package missratio

import (
	"math/rand/v2"

	"github.com/coppice-llm/coppice/kv"
)

// gen draws requests of several shapes.
type gen struct{ *rand.Rand }

func (g gen) between(lo, hi int) int { return lo + g.IntN(hi-lo+1) }

func (g gen) more(stem []kv.Token, n int) []kv.Token {
	all := make([]kv.Token, len(stem), len(stem)+n)
	copy(all, stem)
	for len(all) < cap(all) {
		all = append(all, kv.Token(g.IntN(128000)))
	}
	return all
}

// shapes: how requests share their beginnings.
var shapes = map[string]func(g gen) func() []kv.Token{
	// Conversations of five turns on average over 64 system prompts of Zipf's popularity.
	"chat": func(g gen) func() []kv.Token {
		zipf := rand.NewZipf(g.Rand, 1.2, 1, 63)
		var systems, open [][]kv.Token
		for range 64 {
			systems = append(systems, g.more(nil, g.between(256, 2048)))
		}
		return func() []kv.Token {
			for len(open) < 256 {
				open = append(open, systems[zipf.Uint64()])
			}
			i := g.IntN(len(open))
			turn := g.more(open[i], g.between(64, 1024))
			open[i] = turn
			if g.IntN(5) == 0 || len(turn) > 16384 {
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
			return turn
		}
	},
	// One of eight long prefixes and a short tail.
	"fewshot": func(g gen) func() []kv.Token {
		var prefixes [][]kv.Token
		for range 8 {
			prefixes = append(prefixes, g.more(nil, g.between(2000, 4000)))
		}
		return func() []kv.Token { return g.more(prefixes[g.IntN(8)], g.between(64, 256)) }
	},
	// Each continues one of the latest 512.
	"tree": func(g gen) func() []kv.Token {
		thoughts := [][]kv.Token{g.more(nil, 1024)}
		return func() []kv.Token {
			recent := thoughts[max(0, len(thoughts)-512):]
			from := recent[g.IntN(len(recent))]
			if len(from) > 8192 {
				from = thoughts[0]
			}
			thoughts = append(thoughts, g.more(from, g.between(16, 192)))
			return thoughts[len(thoughts)-1]
		}
	},
	"unique": func(g gen) func() []kv.Token {
		return func() []kv.Token { return g.more(nil, g.between(256, 4096)) }
	},
}

func generate(shape string, n int, seed uint64) [][]kv.Token {
	next := shapes[shape](gen{rand.New(rand.NewPCG(seed, 7))})
	var all [][]kv.Token
	for range n {
		all = append(all, next())
	}
	return all
}
