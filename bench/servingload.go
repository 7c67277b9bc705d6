package bench

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// ServingLoad is what callers ask of a simulated server.
type ServingLoad uint8

// The loads. Prompts have the shape of the generated traces (see [TraceKind]),
// answers are what the simulated model says.
const (
	// ServeChat: conversations over 64 system prompts, each turn with all that was
	// said before. A turn comes at its time, or when the one before is answered, if
	// that is later.
	ServeChat ServingLoad = iota
	// ServeFewShot: one of 8 long prefixes, a short tail, a short answer.
	ServeFewShot
	// ServeTree: each request goes on where the answer to one of the latest 2048 ended.
	ServeTree
	// ServeUnique: nothing shared.
	ServeUnique
	// ServeMixed: chat, and every 64th request is a prompt of 100,000 tokens of its own.
	ServeMixed
	// ServeTenants: three tenants, each with a prefix of its own. One floods with
	// half of all requests, of long prompts; one sends a third, one a sixth.
	ServeTenants
)

var servingLoads = enum.New[ServingLoad]("bench", "load", "chat", "fewshot", "tree", "unique", "mixed", "tenants")

// ServingLoads are all of them.
func ServingLoads() []ServingLoad { return servingLoads.Values() }

func (l ServingLoad) String() string { return servingLoads.Name(l) }

// UnmarshalText takes the names that String gives.
func (l *ServingLoad) UnmarshalText(text []byte) error { return servingLoads.Read(l, text) }

// Sizes of the loads, in tokens where nothing else is said.
const (
	servingVocabulary = genVocabulary
	servingChats      = 512  // conversations at a time: enough that few questions have to wait for an answer
	servingThoughts   = 2048 // requests that may be continued, for the same reason
	longEvery         = 64
	longPrompt        = 100_000
	chatAnswer        = 128 // medians
	fewShotAnswer     = 32
	treeAnswer        = 64
	longAnswer        = 64
	treeAsk           = 32  // what is put behind the answer that is continued, at most
	floodPrompt       = 512 // least tail of the flooding tenant's prompts; at most thrice that
	tenantPrefix      = 2000
)

// ask is one request of a load, the same under every policy: answers depend on
// the prompt alone, so that they are known before.
type ask struct {
	prompt []kv.Token
	answer []kv.Token
	limit  int // of tokens, what the caller sets; the answer's last token is what stops it
	tenant string
	after  *ask   // comes when that one is answered, if not before
	at     uint64 // arrival, in gapUnit of the mean gap
	long   bool
	index  int // among asks
}

// gapUnit is what a mean gap between arrivals counts.
const gapUnit = 1 << 20

// servingTrace is a load in the order of arrival.
type servingTrace struct {
	asks    []*ask
	tenants []string // that occur, sorted
}

// servingGen makes a trace.
type servingGen struct {
	*generator
	model *sim.Backend
}

// newServingTrace makes the requests of a load: the same on every machine, all
// chance comes from one PCG of the seed, the model's outputs from the seed too.
func newServingTrace(load ServingLoad, requests int, seed uint64) (*servingTrace, error) {
	model, err := sim.Open(sim.Config{Pages: 1, Vocab: servingVocabulary, Seed: seed})
	if err != nil {
		return nil, err
	}
	defer model.Close()
	g := &servingGen{generator: &generator{rng: rand.New(rand.NewPCG(seed, 0x736572766520))}, model: model}
	var next func() *ask
	switch load {
	case ServeChat:
		next = g.chat()
	case ServeFewShot:
		next = g.fewShot()
	case ServeTree:
		next = g.tree()
	case ServeUnique:
		next = func() *ask { return g.ask(g.extend(nil, g.between(256, 4096)), chatAnswer) }
	case ServeMixed:
		next = g.mixed()
	case ServeTenants:
		next = g.tenants()
	default:
		return nil, fmt.Errorf("bench: unknown load %v", load)
	}
	t := &servingTrace{}
	at := uint64(0)
	for i := range requests {
		a := next()
		a.at, a.index = at, i
		at += g.gap()
		if a.tenant == "" {
			a.tenant = g.zipfTenant()
		}
		if !slices.Contains(t.tenants, a.tenant) {
			t.tenants = append(t.tenants, a.tenant)
		}
		t.asks = append(t.asks, a)
	}
	slices.Sort(t.tenants)
	return t, nil
}

// ask is a request for an answer of a length near median. The caller's limit is
// two to eight times the median and tells little of the length.
func (g *servingGen) ask(prompt []kv.Token, median int) *ask {
	a := &ask{prompt: prompt, limit: median << (1 + g.rng.IntN(3))}
	n := min(g.near(median), a.limit)
	a.answer = g.model.Expect(prompt, engine.SamplingParams{}, n, nil)
	// Its last token stops it, where it comes first.
	a.answer = a.answer[:slices.Index(a.answer, a.answer[n-1])+1]
	return a
}

// said is a prompt with its answer.
func (a *ask) said() []kv.Token { return slices.Concat(a.prompt, a.answer) }

// chat is like generator.chat, with the model's answers.
func (g *servingGen) chat() func() *ask {
	popular := rand.NewZipf(g.rng, chatZipfExponent, 1, chatSystems-1)
	systems := make([][]kv.Token, chatSystems)
	for i := range systems {
		systems[i] = g.extend(nil, g.between(256, 2048))
	}
	type conversation struct {
		said   []kv.Token
		last   *ask
		tenant string
	}
	var open []conversation
	return func() *ask {
		for len(open) < servingChats {
			open = append(open, conversation{said: systems[popular.Uint64()], tenant: g.zipfTenant()})
		}
		i := g.rng.IntN(len(open))
		c := &open[i]
		a := g.ask(g.extend(c.said, g.between(32, 512)), chatAnswer)
		a.after, a.tenant = c.last, c.tenant
		c.last, c.said = a, a.said()
		if g.rng.Float64() < chatEnds || len(c.said) > chatLongest {
			last := len(open) - 1
			open[i] = open[last]
			open = open[:last]
		}
		return a
	}
}

func (g *servingGen) fewShot() func() *ask {
	next := g.generator.fewShot()
	return func() *ask { return g.ask(next(), fewShotAnswer) }
}

func (g *servingGen) tree() func() *ask {
	stem := g.extend(nil, treeStem)
	var thoughts []*ask
	return func() *ask {
		var from *ask
		said := stem
		if n := len(thoughts); n > 0 {
			from = thoughts[max(0, n-servingThoughts)+g.rng.IntN(min(n, servingThoughts))]
			said = from.said()
			if len(said) > treeLongest {
				from, said = nil, stem
			}
		}
		a := g.ask(g.extend(said, g.between(1, treeAsk)), treeAnswer)
		a.after = from
		thoughts = append(thoughts, a)
		return a
	}
}

func (g *servingGen) mixed() func() *ask {
	next, n := g.chat(), 0
	return func() *ask {
		if n++; n%longEvery != longEvery/2 { // the first one does not find an idle device
			return next()
		}
		a := g.ask(g.extend(nil, longPrompt), longAnswer)
		a.long = true
		return a
	}
}

func (g *servingGen) tenants() func() *ask {
	flood, steady, small := g.extend(nil, tenantPrefix), g.extend(nil, tenantPrefix), g.extend(nil, tenantPrefix/4)
	return func() *ask {
		var a *ask
		switch n := g.rng.IntN(6); {
		case n < 3:
			a = g.ask(g.extend(flood, g.between(floodPrompt, 3*floodPrompt)), 2*chatAnswer)
			a.tenant = "flood"
		case n < 5:
			a = g.ask(g.extend(steady, g.between(64, 512)), chatAnswer)
			a.tenant = "steady"
		default:
			a = g.ask(g.extend(small, g.between(16, 128)), chatAnswer/2)
			a.tenant = "small"
		}
		return a
	}
}

// zipfTenant is one of 8, the k-th with a weight of 1/k.
func (g *servingGen) zipfTenant() string {
	const all = 840 // the least common multiple of 1 to 8
	sum := 0
	for k := 1; k <= 8; k++ {
		sum += all / k
	}
	n := g.rng.IntN(sum)
	k := 1
	for ; n >= all/k; k++ {
		n -= all / k
	}
	return fmt.Sprintf("tenant-%d", k)
}

// near draws a length about a median, in the shape of a log-normal: a power of two
// whose exponent is the sum of four even chances, some 0.9 octaves of standard
// deviation, between an eighth and eight times the median. In integers, so
// that it is the same everywhere; between powers of two it is a straight line.
func (g *generator) near(median int) int {
	const octave = 256
	e := 3 * octave
	for range 4 {
		e += g.rng.IntN(385) - 192
	}
	return max(median*(octave+e%octave)<<(e/octave)/octave>>3, 1)
}

// gap draws from the exponential distribution of mean gapUnit: -ln(u) of an even
// u, the logarithm bit by bit from squarings.
func (g *generator) gap() uint64 {
	const fraction = 20 // bits; gapUnit is one
	r := g.rng.Uint64() | 1
	zeros := bits.LeadingZeros64(r)
	x := r << zeros >> 32 // in [2^31, 2^32): the mantissa
	log := uint64(0)
	for range fraction {
		x = x * x >> 31
		log <<= 1
		if x >= 1<<32 {
			x >>= 1
			log |= 1
		}
	}
	octaves := uint64(zeros+1)<<fraction - log
	return octaves * 45426 >> 16 // times ln 2
}
