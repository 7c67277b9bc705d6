package bench

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// ServingLoad selects the requests to a simulated server.
type ServingLoad uint8

// The loads. Prompts are drawn as in the generated traces (see [TraceKind]); answers
// come from the simulated model.
const (
	// ServeChat is conversations over 64 system prompts; each turn repeats all earlier
	// turns and answers. A turn arrives at its drawn time, or when the turn before it
	// is answered, if that is later.
	ServeChat ServingLoad = iota
	// ServeFewShot is one of 8 long shared prefixes, a short tail, a short answer.
	ServeFewShot
	// ServeTree is tree of thought: each request continues one of the latest 2048
	// requests and its answer.
	ServeTree
	// ServeUnique is prompts that share nothing.
	ServeUnique
	// ServeMixed is ServeChat, with every 64th request a unique prompt of 100,000 tokens.
	ServeMixed
	// ServeTenants is three tenants, each with its own prefix. One floods the server
	// with half of all requests, of long prompts; one sends a third, one a sixth.
	ServeTenants
)

var servingLoads = enum.New[ServingLoad]("bench", "load", "chat", "fewshot", "tree", "unique", "mixed", "tenants")

// ServingLoads returns all loads.
func ServingLoads() []ServingLoad { return servingLoads.Values() }

func (l ServingLoad) String() string { return servingLoads.Name(l) }

// UnmarshalText accepts the names that String returns.
func (l *ServingLoad) UnmarshalText(text []byte) error { return servingLoads.Read(l, text) }

// Sizes of the loads, in tokens unless stated otherwise.
const (
	servingVocabulary = genVocabulary
	servingChats      = 512  // concurrent conversations: enough that few questions must wait for an earlier answer
	servingThoughts   = 2048 // latest requests that may be continued, for the same reason
	longEvery         = 64
	longPrompt        = 100_000
	chatAnswer        = 128 // median; so are the next three
	fewShotAnswer     = 32
	treeAnswer        = 64
	longAnswer        = 64
	treeAsk           = 32  // most tokens added after the continued answer
	floodPrompt       = 512 // the flooding tenant's prompts have 512 to 1536 tokens after the prefix
	tenantPrefix      = 2000
)

// ask is one request of a load, the same under every policy. The answer depends on the
// prompt alone, so it is known in advance.
type ask struct {
	prompt []kv.Token
	answer []kv.Token // its last token is the request's stop token
	limit  int        // MaxTokens of the request
	tenant string
	after  *ask   // if not nil, this request arrives no earlier than its answer
	at     uint64 // arrival, in mean gaps between arrivals times gapUnit
	index  int    // among asks
}

// gapUnit represents one mean gap in arrival times, which are fixed-point numbers.
const gapUnit = 1 << 20

// servingTrace is a load in the order of arrival.
type servingTrace struct {
	asks    []*ask
	tenants []string // of asks, sorted
}

// servingGen draws the requests of a trace and computes their answers.
type servingGen struct {
	*generator
	model *sim.Backend
}

// newServingTrace makes the requests of a load, the same on every machine: one PCG
// draws all random numbers, and the seed also determines the model's outputs. It ends early with
// ctx, whose cause it returns then.
func newServingTrace(ctx context.Context, load ServingLoad, requests int, seed uint64) (*servingTrace, error) {
	model, err := sim.Open(sim.Config{Pages: 1, Vocab: servingVocabulary, Seed: seed})
	if err != nil {
		return nil, err
	}
	defer model.Close()
	g := &servingGen{generator: &generator{rng: rand.New(rand.NewPCG(seed, 0x736572766520))}, model: model}
	if !servingLoads.Has(load) {
		return nil, fmt.Errorf("bench: unknown load %v", load)
	}
	next := [...]func() func() *ask{
		ServeChat: g.chat, ServeTree: g.tree, ServeMixed: g.mixed, ServeTenants: g.tenants,
		ServeFewShot: g.asking(g.generator.fewShot, fewShotAnswer), ServeUnique: g.asking(g.generator.unique, chatAnswer),
	}[load]()
	t := &servingTrace{}
	at := uint64(0)
	for i := range requests {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
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

// ask returns a request with this prompt. The answer has a length near median, in tokens. The
// limit is 2, 4 or 8 times the median, so it says little about the length of the answer.
func (g *servingGen) ask(prompt []kv.Token, median int) *ask {
	a := &ask{prompt: prompt, limit: median << (1 + g.rng.IntN(3))}
	n := min(g.near(median), a.limit)
	a.answer = g.model.Expect(prompt, engine.SamplingParams{}, n, nil)
	// The last token is the stop token, so the answer ends at its first occurrence.
	a.answer = a.answer[:slices.Index(a.answer, a.answer[n-1])+1]
	return a
}

// said returns the prompt with its answer.
func (a *ask) said() []kv.Token { return slices.Concat(a.prompt, a.answer) }

// chat returns a generator of requests of conversations, like generator.chat, but with the model's
// answers instead of random tokens.
func (g *servingGen) chat() func() *ask {
	system := g.systems()
	type conversation struct {
		said   []kv.Token
		last   *ask
		tenant string
	}
	var open []conversation
	return func() *ask {
		for len(open) < servingChats {
			open = append(open, conversation{said: system(), tenant: g.zipfTenant()})
		}
		i := g.rng.IntN(len(open))
		c := &open[i]
		a := g.ask(g.extend(c.said, g.between(32, 512)), chatAnswer)
		a.after, a.tenant = c.last, c.tenant
		c.last, c.said = a, a.said()
		if g.rng.Float64() < chatEnds || len(c.said) > chatLongest {
			open = dropped(open, i)
		}
		return a
	}
}

// asking returns the generator prompts as one of requests, with answers of about this length.
func (g *servingGen) asking(prompts func() func() []kv.Token, answer int) func() func() *ask {
	return func() func() *ask {
		next := prompts()
		return func() *ask { return g.ask(next(), answer) }
	}
}

// tree returns a generator of requests that continue earlier ones, like generator.tree, but with
// the model's answers instead of random continuations.
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

// mixed returns a generator of chat requests, with a long prompt as every longEvery-th.
func (g *servingGen) mixed() func() *ask {
	next, n := g.chat(), 0
	return func() *ask {
		if n++; n%longEvery != longEvery/2 { // request 32, 96, …: so that the device is busy when the first long prompt arrives
			return next()
		}
		return g.ask(g.extend(nil, longPrompt), longAnswer)
	}
}

// tenants returns a generator of requests of three tenants, in shares of 3/6, 2/6 and 1/6.
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

// zipfTenant draws one of 8 tenants, the k-th with weight 1/k.
func (g *servingGen) zipfTenant() string {
	const all = 840 // least common multiple of 1 to 8, so that all/k is exact
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

// near draws a length around median, approximately log-normal: median times 2^e, where e is the
// sum of four draws that are evenly distributed over [-0.75, 0.75]. The variance of e is 4 ·
// 1.5²/12 = 0.75, hence its standard deviation is 0.87; lengths are between an eighth of the
// median and eight times it. near computes in integers, so that all machines agree, and
// interpolates 2^e linearly between powers of two.
func (g *generator) near(median int) int {
	const octave = 256
	e := 3 * octave
	for range 4 {
		e += g.rng.IntN(385) - 192
	}
	return max(median*(octave+e%octave)<<(e/octave)/octave>>3, 1)
}

// gap draws from the exponential distribution of mean gapUnit: -ln(u) for a u drawn evenly from
// (0, 1]. It computes the binary logarithm in integers, bit by bit: squaring the mantissa doubles
// its logarithm, and the carry is the next bit of the logarithm.
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
