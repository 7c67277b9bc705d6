package fleet

import (
	"fmt"
	"math/rand/v2"

	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

// BlockTokens is the block size of workers, events, index and router.
const BlockTokens = 16

// MaxRequests bounds a trace. More would take hours to simulate.
const MaxRequests = 1 << 20

// Trace holds the requests to a fleet, in order of arrival. Their tokens are generated
// on arrival, since the prompts of a large fleet together do not fit into memory.
type Trace struct {
	Name string
	asks []ask
}

// Requests returns the number of requests.
func (t *Trace) Requests() int { return len(t.asks) }

// ask is one request.
type ask struct {
	at     float64 // time of arrival; the unit is the mean time between two arrivals
	after  int     // number of the request that this one continues, and whose end it waits for; -1: none
	prompt []segment
	answer segment
}

// segment stands for n tokens of a stream, from token number from on. Token i of a stream is a
// hash of the stream's number and i, so equal segments have equal tokens.
type segment struct {
	stream  uint64
	from, n int
}

// append appends the tokens of the segment to dst.
func (s segment) append(dst []kv.Token) []kv.Token {
	for i := s.from; i < s.from+s.n; i++ {
		dst = append(dst, kv.Token(mix(s.stream, uint64(i))&(vocabulary-1)))
	}
	return dst
}

// mix hashes two numbers.
func mix(a, b uint64) uint64 { return splitmix.Mix(a*splitmix.Golden + b) }

// tokens returns the number of prompt tokens.
func (a *ask) tokens() int {
	n := 0
	for _, s := range a.prompt {
		n += s.n
	}
	return n
}

// fill generates request i into r, and reuses the slices of r. h is memory that fill overwrites.
func (t *Trace) fill(i int, h *kv.Hasher, r *Request) {
	a := &t.asks[i]
	*r = Request{ID: i, Tokens: r.Tokens[:0], Locals: r.Locals[:0], Hashes: r.Hashes[:0], Answer: r.Answer[:0], OutputTokens: a.answer.n}
	for _, s := range a.prompt {
		r.Tokens = s.append(r.Tokens)
	}
	r.Answer = a.answer.append(r.Answer)
	*h = *kv.NewHasher(kv.Namespace{}, BlockTokens)
	for rest := r.Tokens; len(rest) >= BlockTokens; rest = rest[BlockTokens:] {
		hash, local := h.Next(rest[:BlockTokens])
		r.Hashes, r.Locals = append(r.Hashes, hash), append(r.Locals, local)
	}
}

// Generated returns the names of the traces that Generate makes, except groups:N.
func Generated() []string { return []string{"chat", "fewshot", "tree", "unique"} }

// Sizes of the generated traces, in tokens unless stated otherwise. They are similar to
// those of package bench's generator, with answers in addition.
const (
	chatSystems = 64
	chatOpen    = 24   // concurrent conversations for each worker
	chatEnds    = 0.15 // chance that a turn is the last
	chatLongest = 16384
	chatZipf    = 1.2

	fewShotPrefixes = 8
	groupTokens     = 4096
	maxGroups       = 1 << 16
	treeStem        = 1024
	treeRecent      = 64 // latest requests that may be continued, for each worker
	treeLongest     = 8192
)

// Generate makes a trace of this many requests for a fleet of this many workers. The seed
// determines all random choices. Names are
//
//   - chat: conversations over 64 system prompts of Zipfian popularity, 24 concurrent ones for
//     each worker. A turn arrives at its drawn time, or when the turn before it is answered, if
//     that is later
//   - fewshot: one of 8 long prefixes and a short tail, for any number of workers
//   - tree: each request continues a recent one and its answer
//   - unique: nothing shared
//   - groups:N: one of N equally frequent prefixes of groupTokens and a short tail
//
// An unknown name and numbers out of range are errors.
func Generate(name string, requests, workers int, seed uint64) (*Trace, error) {
	if requests < 1 || requests > MaxRequests || workers < 1 {
		return nil, fmt.Errorf("fleet: a trace of %d requests for %d workers, want 1 to %d for 1 or more", requests, workers, MaxRequests)
	}
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x666c656574)), trace: &Trace{Name: name}}
	var next func() ask
	switch name {
	case "chat":
		next = g.chat(workers)
	case "fewshot":
		next = g.fewShot()
	case "tree":
		next = g.tree(workers)
	case "unique":
		next = func() ask { return g.ask(nil, g.fresh(g.between(256, 4096)), 128) }
	default:
		var groups int
		if n, err := fmt.Sscanf(name, "groups:%d", &groups); n != 1 || err != nil || groups < 1 || groups > maxGroups {
			return nil, fmt.Errorf("fleet: unknown trace %q, want one of %v, or groups:N for N of 1 to %d prefixes", name, Generated(), maxGroups)
		}
		next = g.groups(groups)
	}
	at := 0.0
	for range requests {
		a := next()
		a.at = at
		at += g.rng.ExpFloat64()
		g.trace.asks = append(g.trace.asks, a)
	}
	return g.trace, nil
}

// generator draws the requests of a trace.
type generator struct {
	rng     *rand.Rand
	trace   *Trace
	streams uint64 // number of streams used so far
}

// between returns a random number from lo to hi, both included; all are equally probable.
func (g *generator) between(lo, hi int) int { return lo + g.rng.IntN(hi-lo+1) }

// fresh returns the first n tokens of a new stream.
func (g *generator) fresh(n int) segment {
	g.streams++
	return segment{g.streams, 0, n}
}

// near returns a random length around median, approximately log-normal: median times 2^e, where
// e is the sum of four numbers drawn evenly from [-0.75, 0.75]. So the standard deviation of e
// is 0.87.
func (g *generator) near(median int) int {
	e := 0
	for range 4 {
		e += g.rng.IntN(385) - 192
	}
	n := median * (256 + ((e%256)+256)%256) / 256
	for ; e < 0; e += 256 {
		n /= 2
	}
	for ; e >= 256; e -= 256 {
		n *= 2
	}
	return max(1, n)
}

// ask returns a request whose prompt is the segments of before, and then last. The answer
// continues the stream of last; its length is drawn around median.
func (g *generator) ask(before []segment, last segment, median int) ask {
	prompt := append(append(make([]segment, 0, len(before)+1), before...), last)
	return ask{after: -1, prompt: prompt, answer: segment{last.stream, last.from + last.n, g.near(median)}}
}

// chat returns a function that draws the next turn of a conversation. A conversation is a system
// prompt and one stream: each turn appends the next tokens of the stream as the question and the
// tokens after these as the answer.
func (g *generator) chat(workers int) func() ask {
	popular := rand.NewZipf(g.rng, chatZipf, 1, chatSystems-1)
	systems := make([]segment, chatSystems)
	for i := range systems {
		systems[i] = g.fresh(g.between(256, 2048))
	}
	type conversation struct {
		system, said segment
		last         int
	}
	open := make([]conversation, chatOpen*workers)
	start := func() conversation { return conversation{systems[popular.Uint64()], g.fresh(0), -1} }
	for i := range open {
		open[i] = start()
	}
	return func() ask {
		i := g.rng.IntN(len(open))
		c := &open[i]
		c.said.n += g.between(32, 512)
		a := g.ask([]segment{c.system}, c.said, 128)
		a.after, c.last = c.last, len(g.trace.asks)
		c.said.n += a.answer.n
		if g.rng.Float64() < chatEnds || c.said.n > chatLongest {
			*c = start()
		}
		return a
	}
}

// groups returns a function that draws a request with one of n prefixes. With a large n the
// prefixes exceed the caches of the fleet.
func (g *generator) groups(n int) func() ask {
	prefixes := make([]segment, n)
	for i := range prefixes {
		prefixes[i] = g.fresh(groupTokens)
	}
	return func() ask {
		return g.ask([]segment{prefixes[g.rng.IntN(n)]}, g.fresh(g.between(16, 64)), 32)
	}
}

// fewShot returns a function that draws a request with one of 8 long prefixes.
func (g *generator) fewShot() func() ask {
	prefixes := make([]segment, fewShotPrefixes)
	for i := range prefixes {
		prefixes[i] = g.fresh(g.between(2000, 4000))
	}
	return func() ask {
		return g.ask([]segment{prefixes[g.rng.IntN(fewShotPrefixes)]}, g.fresh(g.between(64, 256)), 32)
	}
}

// tree returns a function that draws a request. Its prompt is the prompt and answer of a recent
// request, and some new tokens. If that has more than treeLongest tokens, the prompt is the
// stem, which all requests share, and some new tokens.
func (g *generator) tree(workers int) func() ask {
	stem := g.fresh(treeStem)
	return func() ask {
		n := len(g.trace.asks)
		recent := min(n, treeRecent*workers)
		after, said := -1, []segment{stem}
		if recent > 0 {
			after = n - 1 - g.rng.IntN(recent)
			from := &g.trace.asks[after]
			last := from.prompt[len(from.prompt)-1]
			last.n += from.answer.n
			said = append(append([]segment(nil), from.prompt[:len(from.prompt)-1]...), last)
		}
		a := g.ask(said, g.fresh(g.between(1, 32)), 64)
		a.after = after
		if a.tokens() > treeLongest {
			a = g.ask([]segment{stem}, g.fresh(g.between(1, 32)), 64)
		}
		return a
	}
}
