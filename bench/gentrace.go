package bench

import (
	"fmt"
	"math/rand/v2"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// TraceKind is a way in which requests share prefixes.
type TraceKind uint8

// The kinds of generated traces.
const (
	TraceChat    TraceKind = iota // conversations of several turns over 64 system prompts of Zipfian popularity
	TraceFewShot                  // one of 8 long shared prefixes and a short tail
	TraceTree                     // tree of thought: each request continues one of the latest 512
	TraceUnique                   // nothing shared
)

var traceKinds = enum.New[TraceKind]("bench", "trace", "chat", "fewshot", "tree", "unique")

func (k TraceKind) String() string { return traceKinds.Name(k) }

// UnmarshalText accepts the names that String returns.
func (k *TraceKind) UnmarshalText(text []byte) error { return traceKinds.Read(k, text) }

// TraceConfig says which trace to generate. Requests must be set.
type TraceConfig struct {
	Kind      TraceKind
	Requests  int // 1 to MaxTraceRequests
	Seed      uint64
	MaxTokens int // a trace of more tokens, of 4 bytes each, is an error. Default 0: no limit
}

// Sizes of the generated traces, in tokens unless stated otherwise. Published figures
// depend on all of them and on the order in which the generators draw random numbers,
// so neither may change.
const (
	genVocabulary = 128000

	chatSystems      = 64
	chatOpen         = 256   // concurrent conversations
	chatLongest      = 16384 // a conversation of more tokens ends
	chatEnds         = 0.2   // chance that a turn is the last: 5 turns on average
	fewShotPrefixes  = 8
	treeStem         = 1024 // common beginning of all requests
	treeRecent       = 512  // latest requests that may be continued
	treeLongest      = 8192 // a longer request is not continued; the stem is instead
	chatZipfExponent = 1.2
)

// GenerateTrace makes a trace. The same configuration gives the same trace on every
// machine: one PCG, seeded with Seed, draws all random numbers. A number of requests
// out of range, a trace of too many tokens and an unknown kind are errors.
func GenerateTrace(cfg TraceConfig) (*Trace, error) {
	if cfg.Requests < 1 || cfg.Requests > MaxTraceRequests {
		return nil, fmt.Errorf("bench: Requests is %d, want 1 to %d", cfg.Requests, MaxTraceRequests)
	}
	g := &generator{rng: rand.New(rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15))}
	if !traceKinds.Has(cfg.Kind) {
		return nil, fmt.Errorf("bench: unknown kind of trace %v", cfg.Kind)
	}
	next := [...]func() func() []kv.Token{TraceChat: g.chat, TraceFewShot: g.fewShot, TraceTree: g.tree, TraceUnique: g.unique}[cfg.Kind]()
	t := &Trace{requests: make([][]kv.Token, 0, cfg.Requests)}
	for i := range cfg.Requests {
		t.add(next())
		if n := i + 1; cfg.MaxTokens > 0 && n >= min(1000, cfg.Requests) && t.tokens/n*cfg.Requests > cfg.MaxTokens { // by their mean so far
			return nil, fmt.Errorf("bench: %d requests of trace %v have about %d tokens, at most %d fit into the memory set aside: want fewer requests",
				cfg.Requests, cfg.Kind, t.tokens/n*cfg.Requests, cfg.MaxTokens)
		}
	}
	return t, nil
}

// generator draws the random numbers of a trace.
type generator struct{ rng *rand.Rand }

// between draws evenly from lo to hi, both included.
func (g *generator) between(lo, hi int) int { return lo + g.rng.IntN(hi-lo+1) }

// extend returns a copy of stem with n random tokens after it.
func (g *generator) extend(stem []kv.Token, n int) []kv.Token {
	all := append(make([]kv.Token, 0, len(stem)+n), stem...)
	for range n {
		all = append(all, kv.Token(g.rng.Uint32N(genVocabulary)))
	}
	return all
}

// chat returns a generator of requests of which each continues one of the open
// conversations by a question and its answer.
func (g *generator) chat() func() []kv.Token {
	system := g.systems()
	var open [][]kv.Token
	return func() []kv.Token {
		for len(open) < chatOpen {
			open = append(open, system())
		}
		i := g.rng.IntN(len(open))
		question := g.extend(open[i], g.between(32, 512))
		turn := g.extend(question, g.between(32, 512))
		open[i] = turn
		if g.rng.Float64() < chatEnds || len(turn) > chatLongest {
			open = dropped(open, i)
		}
		return turn
	}
}

// systems draws chatSystems system prompts. It returns a function that chooses one by its popularity.
func (g *generator) systems() func() []kv.Token {
	popular := rand.NewZipf(g.rng, chatZipfExponent, 1, chatSystems-1)
	systems := make([][]kv.Token, chatSystems)
	for i := range systems {
		systems[i] = g.extend(nil, g.between(256, 2048))
	}
	return func() []kv.Token { return systems[popular.Uint64()] }
}

// dropped returns all without element i, in whose place the last one comes.
func dropped[T any](all []T, i int) []T {
	last := len(all) - 1
	all[i] = all[last]
	return all[:last]
}

// fewShot returns a generator of requests that begin with one of the shared prefixes.
func (g *generator) fewShot() func() []kv.Token {
	prefixes := make([][]kv.Token, fewShotPrefixes)
	for i := range prefixes {
		prefixes[i] = g.extend(nil, g.between(2000, 4000))
	}
	return func() []kv.Token {
		prefix := prefixes[g.rng.IntN(fewShotPrefixes)]
		return g.extend(prefix, g.between(64, 256))
	}
}

// unique returns a generator of requests that share nothing.
func (g *generator) unique() func() []kv.Token {
	return func() []kv.Token { return g.extend(nil, g.between(256, 4096)) }
}

// tree returns a generator of requests that each continue one of the latest requests.
func (g *generator) tree() func() []kv.Token {
	thoughts := [][]kv.Token{g.extend(nil, treeStem)}
	return func() []kv.Token {
		recent := thoughts[max(0, len(thoughts)-treeRecent):]
		from := recent[g.rng.IntN(len(recent))]
		if len(from) > treeLongest {
			from = thoughts[0]
		}
		thought := g.extend(from, g.between(16, 192))
		thoughts = append(thoughts, thought)
		return thought
	}
}
