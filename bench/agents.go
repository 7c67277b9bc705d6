package bench

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/kv"
)

// agentsScale is the number of served tokens that a token of an agents' trace stands for, as [MooncakeScale].
const agentsScale = 32

// agentsConfig sizes an agents' trace: sessions of many turns that come back after pauses, in a closed loop.
// The zero value works.
type agentsConfig struct {
	Agents   int `default:"96" min:"1"`    // sessions at a time, without sub-agents
	Requests int `default:"10000" min:"1"` // of all sessions together, at least
	Seed     uint64
	// Random makes all pauses memoryless, with the same mean: how long a session has been idle then says
	// nothing about when it comes back.
	Random bool
	// Regular makes pauses vary by an eighth as much: nearly all that wait for a tool come back within a second of
	// each other.
	Regular bool
	// Told lists the facts that the cache hears of the turns. It changes nothing else.
	Told told
}

// The distributions of an agents' trace, in tokens of the trace unless stated otherwise. Published figures depend
// on them. A turn's prompt is the session's context; its output is some reasoning, which later turns leave out,
// and an answer; the context then grows by the answer and a tool's result or a user's message. The medians follow
// recorded coding sessions (AgentX: 43 turns, contexts up to 140,000 served tokens, 44 % of sessions with
// sub-agents, tool results of 500 to 20,000 served tokens).
const (
	agentApps        = 8    // system prompts with tools, of 192 to 384 tokens, chosen by Zipf's law
	agentTurns       = 40   // median of a lognormal distribution
	agentSpread      = 0.8  // its sigma
	agentTurnsMost   = 200  // more turns count as this many
	agentResultLeast = 16   // a tool's result: log-uniform up to agentResultMost
	agentResultMost  = 625  //
	agentLongest     = 4400 // a longer context is replaced by the system prompt and a summary of 64 tokens
	agentUserShare   = 0.15 // turns that wait for the user; the others wait for a tool
	agentToolPause   = 4.0  // seconds: median of a lognormal distribution, sigma 0.8
	agentUserPause   = 90.0 // seconds: median of a lognormal distribution, sigma 1
	agentServe       = 2.0  // seconds from a request to its answer, whatever is cached
	agentSubs        = 0.44 // sessions that have sub-agents, 1 to 3 at a time, at each tenth turn on average
	agentSubTurns    = 8    // mean of a geometric distribution
	agentReasons     = 0.5  // turns with reasoning, of 4 to 40 tokens
	agentAside       = 0.3  // turns of users that come with a request of 16 to 200 tokens outside of all sessions
	agentGap         = 60.0 // seconds until a new session takes the place of one that has ended: mean, memoryless
)

// Agents returns traces of agents for [ComparePolicies], at a tenth, three tenths and twelve tenths of the working
// set of the sessions that run. Policies learn from a trace of one seed and are scored on one of the next seed. The
// pauses vary as agents' do, by an eighth as much (regular), or are memoryless (random). The cache is told the sessions of
// requests, and after an answer that calls tools which ones. In the fourth trace sessions are also released when they are
// over; in the fifth one (untold) the cache does not hear of calls, in the last one (unnamed) nothing of sessions.
func Agents(requests int, seed uint64) (traces []NamedTrace, err error) {
	for _, t := range []struct {
		name string
		cfg  agentsConfig
	}{
		{"agents", agentsConfig{Told: told{names: true, calls: true}}},
		{"agents-regular", agentsConfig{Told: told{names: true, calls: true}, Regular: true}},
		{"agents-random", agentsConfig{Told: told{names: true, calls: true}, Random: true}},
		{"agents-released", agentsConfig{Told: told{names: true, calls: true, ends: true}}},
		{"agents-untold", agentsConfig{Told: told{names: true}}},
		{"agents-unnamed", agentsConfig{}},
	} {
		named := NamedTrace{Name: t.name, Scale: agentsScale, Live: []float64{0.1, 0.3, 1.2}}
		if t.cfg.Told.names {
			named.pauses = &t.cfg
		}
		for i, trace := range []**Trace{&named.Warm, &named.Trace} {
			t.cfg.Requests, t.cfg.Seed = requests, seed+uint64(i)
			if *trace, err = generateAgents(t.cfg); err != nil {
				return nil, err
			}
		}
		traces = append(traces, named)
	}
	return traces, nil
}

// traceTurn says when a request of a trace comes, and of which session it is a turn.
type traceTurn struct {
	At      time.Duration
	Session uint32 // 0: none
	Parent  uint32 // the session that waits for this one, a sub-agent; 0: none
	Calls   uint8  // the tool that the answer calls, one of the constants below; 0: none
	Last    bool   // of its session
}

// The tools of a trace. The turn after a call comes without a user.
const (
	callsTool   = 1
	callsAgents = 2 // starts sub-agents, and waits for them
)

// told lists the facts that a cache hears of the turns of a trace beside the times. A server has it from its clients' requests and from
// the answers of its model.
type told struct {
	names bool // the sessions; all else only with them
	calls bool // which tools an answer calls
	ends  bool // which turn was the last of its session: the session is released then
}

// agentSession is a session of the simulation.
type agentSession struct {
	at     float64 // seconds: its next request
	number uint32
	order  int // of equal times, the first made goes first
	app    int
	text   []kv.Token // its context: the prompt of its next request
	left   int        // turns
	subs   bool       // it may have sub-agents
	parent *agentSession
	awaits int // sub-agents that run
}

// Before implements heap.Element.
func (a *agentSession) Before(b *agentSession) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// noPlaces implements heap.Places for agentSession.
type noPlaces struct{}

// Place implements heap.Places.
func (noPlaces) Place(*agentSession, int) {}

// agentsSim generates an agents' trace.
type agentsSim struct {
	cfg     agentsConfig
	rng     *rand.Rand
	apps    [][]kv.Token
	chances []float64 // of the apps, summed up
	next    kv.Token  // never used before
	names   uint32
	made    int
	queue   heap.Heap[*agentSession, noPlaces]
	trace   *Trace
}

// generateAgents makes an agents' trace. The same configuration gives the same trace on every machine, and
// traces of different seeds below 64 share no token.
func generateAgents(cfg agentsConfig) (*Trace, error) {
	cfg = bounds.Fill(cfg)
	if err := bounds.Check("bench", cfg); err != nil {
		return nil, err
	}
	s := &agentsSim{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6167656e7473)), next: kv.Token(cfg.Seed%64)<<24 + 1}
	s.trace = &Trace{told: cfg.Told}
	sum := 0.0
	for i := range agentApps {
		s.apps = append(s.apps, s.fresh(nil, 192+s.rng.IntN(193)))
		sum += 1 / float64(i+1)
		s.chances = append(s.chances, sum)
	}
	for range cfg.Agents {
		s.begin(s.rng.Float64() * agentGap)
	}
	for s.trace.Requests() < cfg.Requests {
		a := s.queue.Items[0]
		s.queue.Remove(noPlaces{}, 0)
		if err := s.turn(a); err != nil {
			return nil, err
		}
	}
	return s.trace, nil
}

// fresh appends n tokens to text that no other text has.
func (s *agentsSim) fresh(text []kv.Token, n int) []kv.Token {
	for range n {
		text = append(text, s.next)
		s.next++
	}
	return text
}

// lognormal draws from a lognormal distribution; with Random, from an exponential one of the same mean.
func (s *agentsSim) lognormal(median, sigma float64) float64 {
	if s.cfg.Random {
		return s.rng.ExpFloat64() * median * math.Exp(sigma*sigma/2)
	}
	if s.cfg.Regular {
		sigma /= 8
	}
	return median * math.Exp(sigma*s.rng.NormFloat64())
}

// begin starts a session whose first request comes at a time, in seconds.
func (s *agentsSim) begin(at float64) {
	app, x := 0, s.rng.Float64()*s.chances[agentApps-1]
	for s.chances[app] < x {
		app++
	}
	turns := int(agentTurns * math.Exp(agentSpread*s.rng.NormFloat64()))
	a := &agentSession{at: at, app: app, left: min(max(turns, 1), agentTurnsMost), subs: s.rng.Float64() < agentSubs}
	a.text = s.fresh(append(a.text, s.apps[app]...), 8+s.rng.IntN(57))
	s.enter(a)
}

// enter numbers a session and puts it into the queue.
func (s *agentsSim) enter(a *agentSession) {
	s.names++
	s.made++
	a.number, a.order = s.names, s.made
	s.queue.Push(noPlaces{}, a)
}

// again puts a session into the queue for its next request.
func (s *agentsSim) again(a *agentSession, at float64) {
	s.made++
	a.at, a.order = at, s.made
	s.queue.Push(noPlaces{}, a)
}

// request adds a request to the trace.
func (s *agentsSim) request(at float64, session uint32, text []kv.Token) error {
	s.trace.add(text)
	s.trace.turns = append(s.trace.turns, traceTurn{At: time.Duration(at * float64(time.Second)), Session: session})
	if s.trace.tokens > math.MaxInt32 {
		return fmt.Errorf("bench: the agents' trace has more than %d tokens: take fewer requests", math.MaxInt32)
	}
	return nil
}

// turn serves the next request of a session and plans what follows it.
func (s *agentsSim) turn(a *agentSession) error {
	reasoning := 0
	if s.rng.Float64() < agentReasons {
		reasoning = 4 + s.rng.IntN(37)
	}
	whole := make([]kv.Token, len(a.text), len(a.text)+reasoning+12)
	copy(whole, a.text)
	whole = s.fresh(whole, reasoning)
	answered := s.next
	whole = s.fresh(whole, 2+s.rng.IntN(11))
	if err := s.request(a.at, a.number, whole); err != nil {
		return err
	}
	if a.parent != nil {
		s.trace.turns[len(s.trace.turns)-1].Parent = a.parent.number
	}
	for t := answered; t < s.next; t++ {
		a.text = append(a.text, t)
	}
	now := a.at + agentServe
	a.left--
	if a.left == 0 {
		s.trace.turns[len(s.trace.turns)-1].Last = true
		s.end(a, now)
		return nil
	}
	if a.parent == nil && s.rng.Float64() < agentUserShare {
		a.text = s.fresh(a.text, 8+s.rng.IntN(57))
		came := a.at
		s.compact(a)
		s.again(a, now+s.lognormal(agentUserPause, 1))
		if s.rng.Float64() < agentAside {
			return s.request(came, 0, s.fresh(nil, 16+s.rng.IntN(185)))
		}
		return nil
	}
	s.trace.turns[len(s.trace.turns)-1].Calls = callsTool
	if a.subs && s.rng.Float64() < 0.1 {
		s.trace.turns[len(s.trace.turns)-1].Calls = callsAgents
		a.awaits = 1 + s.rng.IntN(3)
		for range a.awaits {
			b := &agentSession{at: now + s.rng.Float64(), app: a.app, parent: a, left: 1 + int(s.rng.ExpFloat64()*agentSubTurns)}
			b.text = s.fresh(append(b.text, a.text...), 8+s.rng.IntN(57))
			s.enter(b)
		}
		return nil
	}
	result := agentResultLeast * math.Pow(agentResultMost/agentResultLeast, s.rng.Float64())
	a.text = s.fresh(a.text, int(result))
	s.compact(a)
	s.again(a, now+s.lognormal(agentToolPause, 0.8))
	return nil
}

// end ends a session. A sub-agent's parent goes on when the last sub-agent has ended; a session of its own makes
// room for another.
func (s *agentsSim) end(a *agentSession, now float64) {
	if p := a.parent; p != nil {
		if p.awaits--; p.awaits == 0 {
			p.text = s.fresh(p.text, 16+s.rng.IntN(49))
			s.compact(p)
			s.again(p, now)
		}
		return
	}
	s.begin(now + s.rng.ExpFloat64()*agentGap)
}

// compact replaces a context that is too long by its system prompt and a summary.
func (s *agentsSim) compact(a *agentSession) {
	if len(a.text) > agentLongest {
		a.text = s.fresh(append([]kv.Token(nil), s.apps[a.app]...), 64)
	}
}

// liveTokens returns the working set of the sessions that run: the tokens of their present contexts, in whole
// pages, those that several share once, on average over the requests. A session runs from its first to its last
// request; requests without a session are not part of it.
func (p *pageTrace) livePages(t *Trace) int {
	last := map[uint32]int{}
	for i, turn := range t.turns {
		last[turn.Session] = i
	}
	use, live, sum := make([]int32, p.pages), 0, 0
	count := func(request int, by int32) {
		for _, page := range p.visits[p.begin(request):p.ends[request]] {
			was := use[page]
			use[page] += by
			live += cmp.Compare(int(use[page]), 0) - cmp.Compare(int(was), 0)
		}
	}
	present := map[uint32]int{}
	for i, turn := range t.turns {
		if id := turn.Session; id != 0 {
			if before, some := present[id]; some {
				count(before, -1)
			}
			count(i, 1)
			present[id] = i
			if last[id] == i {
				count(i, -1)
				delete(present, id)
			}
		}
		sum += live
	}
	return sum / max(len(t.turns), 1)
}
