package load

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// Agents has sessions of agents that call tools. A session begins with a system prompt with tools,
// which it shares with others, and a task. Each turn adds the result of a tool, or now and then a
// word of the user, and the prompt grows up to InputTokens. Some sessions start sub-agents, which
// continue the conversation of the session on their own, and which the session waits for.
//
// The sizes are close to recorded sessions of coding agents: a median of 40 turns, prompts up to
// 140,000 tokens of which over 95 % were there before, short answers, and sub-agents in 44 % of
// the sessions. Source: the traces of SemiAnalysis' InferenceX AgentX and of kv-cache-tester
// (callanjfox/kv-cache-tester, trace replay tester), of which the distributions below
// keep medians and ranges.
type Agents struct {
	Vocabulary
	TurnCount    int           `min:"1" max:"4096"`  // median turns of a session, without those of sub-agents
	InputTokens  int           `min:"1" max:"1<<24"` // longest prompt; a session ends before it would be exceeded
	OutputTokens int           `min:"1" max:"1<<20"` // median of an answer
	Scale        int           `min:"1" max:"1<<16"` // divides all lengths, for small models; an answer keeps at least leastAnswer tokens
	Think        time.Duration `min:"0s"`            // mean pause before a turn
	Seed         uint64
}

// The distributions of lengths, in tokens before scaling, and of numbers. Lengths are drawn from
// log-normal distributions, cut at both ends.
var (
	agentTask   = lengths{1000, 1, 100, 8000}
	agentResult = lengths{1300, 1, 500, 20_000} // of a tool
	agentAsk    = lengths{100, 1, 20, 2000}     // of the user
	agentSpread = 0.9                           // sigma of answers
	turnSpread  = 0.7                           // sigma of a session's turns
	branchTurns = lengths{8, 0.6, 1, 40}        // turns of a sub-agent
)

const (
	agentKinds   = 4      // system prompts; the n-th comes half as often as the one before
	agentSystem  = 15_000 // tokens of system prompt and tools: 12,500 of tools and 2,500 of text are usual
	askEvery     = 8      // of this number of turns one is the user's
	userPatience = 9      // a user's pause over a tool's: a mean of Think in all
	branching    = 0.44   // share of the sessions with sub-agents
	mostSpawns   = 3      // times that such a session starts sub-agents, at least once
	mostBranches = 3      // sub-agents started together
	mostTurns    = 10     // longest session over the median
	leastAnswer  = 4      // tokens of an answer after scaling, so that there are gaps between tokens
)

// lengths is a log-normal distribution cut at lo and hi.
type lengths struct {
	median, sigma float64
	lo, hi        int
}

func (l lengths) draw(rng *rand.Rand) int {
	return min(max(int(l.median*math.Exp(l.sigma*rng.NormFloat64())), l.lo), l.hi)
}

func (d *Agents) Sessions() int { return 0 }

func (d *Agents) Requests() (fewest, most int) {
	return 1, d.TurnCount*mostTurns + mostSpawns*mostBranches*branchTurns.hi
}

func (d *Agents) String() string {
	return fmt.Sprintf("agents: median of %d turns, prompts up to %d, scale 1/%d, think %v, of %v", d.TurnCount, d.InputTokens, d.Scale, d.Think, d.Vocabulary)
}

// Validate reports all fields that are out of range.
func (d *Agents) Validate() error {
	err := bounds.Check("load", *d)
	if least := agentSystem + agentTask.hi; err == nil && d.InputTokens < least {
		err = fmt.Errorf("load: InputTokens is %d, want at least %d, the system prompt with tools and a task, before Scale divides them", d.InputTokens, least)
	}
	return err
}

// agentDraw draws one session.
type agentDraw struct {
	*Agents
	rng *rand.Rand
}

func (d *Agents) Session(i int) Session {
	a := agentDraw{d, rand.New(rand.NewPCG(d.Seed, promptStream+uint64(i)))}
	kind := min(bits.TrailingZeros32(a.rng.Uint32()), agentKinds-1)
	s := Session{Name: fmt.Sprintf("agent-%d-%d", d.Seed, i)}
	s.System = d.segment(rand.New(rand.NewPCG(d.Seed, prefixStream+uint64(kind))), kv.CeilPages(agentSystem, d.Scale))
	turns := lengths{float64(d.TurnCount), turnSpread, 1, d.TurnCount * mostTurns}.draw(a.rng)
	spawns := map[int]int{} // turn to number of sub-agents after it
	if a.rng.Float64() < branching {
		for range 1 + a.rng.IntN(mostSpawns) {
			early := max(1, min(turns-1, d.TurnCount*3/4)) // the session may be cut short by InputTokens
			spawns[a.rng.IntN(early)] = 1 + a.rng.IntN(mostBranches)
		}
	}
	a.talk(&s, s.System.Len(), turns, spawns)
	return s
}

// talk appends up to this many turns to s, after a conversation of length tokens. It stops before a
// prompt that is too long.
func (a *agentDraw) talk(s *Session, length, turns int, spawns map[int]int) {
	most := kv.CeilPages(a.InputTokens, a.Scale)
	for n := range turns {
		t := Turn{Think: a.pause()}
		in, out := agentResult.draw(a.rng), lengths{float64(a.OutputTokens), agentSpread, 1, MaxLength}.draw(a.rng)
		switch {
		case n == 0:
			in = agentTask.draw(a.rng)
			t.Think = 0
		case a.rng.IntN(askEvery) == 0:
			in = agentAsk.draw(a.rng)
			t.Think *= userPatience
		}
		in, out = kv.CeilPages(in, a.Scale), max(leastAnswer, kv.CeilPages(out, a.Scale))
		if first := n == 0 && s.System.Len() > 0; length+in > most && !first {
			return
		}
		t.User, t.OutputTokens = a.segment(a.rng, in), out
		length += in + out
		for b := range spawns[n] {
			branch := Session{Name: fmt.Sprintf("%s/%d.%d", s.Name, n, b)}
			if a.talk(&branch, length, branchTurns.draw(a.rng), nil); len(branch.Turns) > 0 {
				t.Agents = append(t.Agents, branch)
			}
		}
		s.Turns = append(s.Turns, t)
	}
}

// pause draws a tool's time. Those of the user are userPatience times as long, so that the mean of
// both is Think.
func (a *agentDraw) pause() time.Duration {
	return time.Duration(a.rng.ExpFloat64() * float64(a.Think) * askEvery / (askEvery - 1 + userPatience))
}
