package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Dataset provides the sessions of a load. Implementations are pure: Session(i) returns
// the same session in every call and any order of calls, so they are safe for
// concurrent use.
type Dataset interface {
	// Sessions returns the number of sessions; 0 means no limit.
	Sessions() int
	// Requests returns the fewest and the most requests of a session, with those of its sub-agents.
	Requests() (fewest, most int)
	// Session makes the i-th session; i is in [0, Sessions()), or any i from 0 if
	// Sessions is 0.
	Session(i int) Session
	// String names the data set and its sizes.
	String() string
}

// Session is a conversation; with one turn, a single request.
type Session struct {
	// At is the beginning of the session, from the beginning of the run. Used with
	// Config.Timed.
	At time.Duration
	// Name is sent with each request, unless Options.NoSessionNames is set: as the header
	// x-session-id and as the field prompt_cache_key. "" sends nothing.
	Name   string
	System Segment // beginning of the prompt; the system role, if the endpoint has roles
	Turns  []Turn
}

// requests returns the number of requests of the session from the turn first on, with those of its
// sub-agents.
func (s *Session) requests(first int) int {
	n := 0
	for i := range s.Turns[first:] {
		n++
		for j := range s.Turns[first+i].Agents {
			n += s.Turns[first+i].Agents[j].requests(0)
		}
	}
	return n
}

// continues reports whether a prompt has the answer to turn n: that of the next turn, or of a
// sub-agent.
func (s *Session) continues(n int) bool {
	for _, a := range s.Turns[n].Agents {
		if len(a.Turns) > 0 && !a.Turns[0].Whole {
			return true
		}
	}
	return n+1 < len(s.Turns) && !s.Turns[n+1].Whole
}

// Turn is a message of the user, which follows all earlier messages and answers.
type Turn struct {
	Think        time.Duration // pause between the answer before and this turn; 0 in the first turn of a data set's session
	User         Segment
	Whole        bool            // User is the whole prompt: neither System nor earlier turns and answers come before it
	Tools        json.RawMessage // field tools of this and the following requests; nil leaves it as it is
	OutputTokens int             // at least 1
	// Agents are sub-agents. They begin together after the answer to this turn, and continue the
	// conversation up to there, each with its own turns; their System is not used. The next turn
	// begins when all have ended.
	Agents []Session
}

// Random has sessions of one request of random tokens. Requests share no prefix.
type Random struct {
	Vocabulary
	InputTokens  int `min:"1" max:"1<<24"` // mean length
	OutputTokens int `min:"1" max:"1<<24"` // mean length
	// RangeRatio spreads lengths evenly over [n - n*RangeRatio, n + n*RangeRatio].
	// Source: vllm/benchmarks/datasets.py, RandomDataset.
	RangeRatio float64
	Seed       uint64
}

func (d *Random) Sessions() int { return 0 }

func (d *Random) Requests() (fewest, most int) { return 1, 1 }

func (d *Random) String() string {
	return fmt.Sprintf("random: %d in, %d out, range ratio %g, of %v", d.InputTokens, d.OutputTokens, d.RangeRatio, d.Vocabulary)
}

func (d *Random) Session(i int) Session {
	rng := rand.New(rand.NewPCG(d.Seed, promptStream+uint64(i)))
	in, out := spread(rng, d.InputTokens, d.RangeRatio), spread(rng, d.OutputTokens, d.RangeRatio)
	return Session{Turns: []Turn{{User: d.segment(rng, in), OutputTokens: out}}}
}

// Validate reports all fields that are out of range.
func (d *Random) Validate() error { return validate(d, d.RangeRatio) }

// SharedPrefix has groups of requests, each group with its own prefix. It is SGLang's
// generated-shared-prefix (python/sglang/bench_serving.py). Make it by NewSharedPrefix.
type SharedPrefix struct {
	Vocabulary
	Groups          int  `min:"1" max:"1<<24"`
	PromptsPerGroup int  `min:"1" max:"1<<24"`
	PrefixTokens    int  `min:"1" max:"1<<24"` // of a group
	SuffixTokens    int  `min:"1" max:"1<<24"` // of each request after the prefix
	OutputTokens    int  `min:"1" max:"1<<24"`
	Ordered         bool // group after group; otherwise shuffled
	Seed            uint64

	order []int // session to request; set by NewSharedPrefix
}

// NewSharedPrefix returns a copy of d with the order of its requests. Sizes out of range
// are errors.
func NewSharedPrefix(d SharedPrefix) (*SharedPrefix, error) {
	if err := bounds.Check("load", d); err != nil {
		return nil, err
	}
	if d.PromptsPerGroup > MaxArrivals/d.Groups {
		return nil, fmt.Errorf("load: %d groups of %d prompts, want at most %d prompts together", d.Groups, d.PromptsPerGroup, MaxArrivals)
	}
	d.order = make([]int, d.Groups*d.PromptsPerGroup)
	for i := range d.order {
		d.order[i] = i
	}
	if !d.Ordered {
		rand.New(rand.NewPCG(d.Seed, orderStream)).Shuffle(len(d.order), func(i, j int) { d.order[i], d.order[j] = d.order[j], d.order[i] })
	}
	return &d, nil
}

func (d *SharedPrefix) Sessions() int { return len(d.order) }

func (d *SharedPrefix) Requests() (fewest, most int) { return 1, 1 }

func (d *SharedPrefix) String() string {
	return fmt.Sprintf("shared-prefix: %d groups of %d, prefix %d, suffix %d, %d out, of %v", d.Groups, d.PromptsPerGroup, d.PrefixTokens, d.SuffixTokens, d.OutputTokens, d.Vocabulary)
}

func (d *SharedPrefix) Session(i int) Session {
	n := d.order[i]
	prefix := rand.New(rand.NewPCG(d.Seed, prefixStream+uint64(n/d.PromptsPerGroup)))
	suffix := rand.New(rand.NewPCG(d.Seed, promptStream+uint64(n)))
	return Session{System: d.segment(prefix, d.PrefixTokens), Turns: []Turn{{User: d.segment(suffix, d.SuffixTokens), OutputTokens: d.OutputTokens}}}
}

// MultiTurn has conversations. The prompt of a turn is the system prompt, all earlier
// turns with the server's answers, and about InputTokens more.
type MultiTurn struct {
	Vocabulary
	TurnCount    int `min:"1" max:"1<<24"`
	SystemTokens int `min:"0" max:"1<<24"` // length of a system prompt
	Systems      int `min:"0" max:"1<<24"` // number of system prompts; conversation i uses i mod Systems. Default 1
	InputTokens  int `min:"1" max:"1<<24"` // mean, of each turn
	OutputTokens int `min:"1" max:"1<<24"` // mean, of each turn
	RangeRatio   float64
	Think        time.Duration `min:"0s"` // mean pause of the user between turns; exponentially distributed
	Seed         uint64
}

func (d *MultiTurn) Sessions() int { return 0 }

func (d *MultiTurn) Requests() (fewest, most int) { return d.TurnCount, d.TurnCount }

func (d *MultiTurn) String() string {
	return fmt.Sprintf("multi-turn: %d turns, system %d, %d in, %d out, range ratio %g, think %v, of %v",
		d.TurnCount, d.SystemTokens, d.InputTokens, d.OutputTokens, d.RangeRatio, d.Think, d.Vocabulary)
}

func (d *MultiTurn) Session(i int) Session {
	rng := rand.New(rand.NewPCG(d.Seed, promptStream+uint64(i)))
	system := uint64(i % max(1, d.Systems))
	s := Session{System: d.segment(rand.New(rand.NewPCG(d.Seed, prefixStream+system)), d.SystemTokens)}
	for n := range d.TurnCount {
		in, out := spread(rng, d.InputTokens, d.RangeRatio), spread(rng, d.OutputTokens, d.RangeRatio)
		t := Turn{User: d.segment(rng, in), OutputTokens: out}
		if n > 0 {
			t.Think = time.Duration(rng.ExpFloat64() * float64(d.Think))
		}
		s.Turns = append(s.Turns, t)
	}
	return s
}

// Validate reports all fields that are out of range.
func (d *MultiTurn) Validate() error { return validate(d, d.RangeRatio) }

// MaxLength is the most tokens in one part of a prompt, or in an output.
const MaxLength = 1 << 24

// validate reports the fields of data set d that are out of range, and a ratio outside [0, 1).
func validate(d Dataset, ratio float64) error {
	err := bounds.Check("load", d)
	if !(ratio >= 0 && ratio < 1) {
		err = errors.Join(err, fmt.Errorf("load: RangeRatio is %v, want 0 or more and less than 1", ratio))
	}
	return err
}

// spread draws a length evenly from mean*(1-ratio) to mean*(1+ratio). The bounds are rounded
// outwards; the result is at least 1.
func spread(rng *rand.Rand, mean int, ratio float64) int {
	if ratio == 0 {
		return mean
	}
	lo, hi := int(math.Floor(float64(mean)*(1-ratio))), int(math.Ceil(float64(mean)*(1+ratio)))
	return max(1, lo+rng.IntN(hi-lo+1))
}
