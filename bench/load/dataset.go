package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Dataset is the sessions of a load. Implementations are pure: Session(i) is the same
// each time, whoever asks and in whatever order, so they are safe for concurrent use.
type Dataset interface {
	// Sessions is how many there are; 0 means any number.
	Sessions() int
	// Turns is how many turns a session has at most.
	Turns() int
	// Session makes up the i-th one; i is in [0, Sessions()).
	Session(i int) Session
	// String names the data set and its sizes.
	String() string
}

// Session is a conversation, or one request.
type Session struct {
	// At is when it begins, from the beginning of the run; used with Config.Timed.
	At     time.Duration
	System Segment // comes first, in a role of its own where there are roles
	Turns  []Turn
}

// Turn is what a user says, after what was said before.
type Turn struct {
	Think        time.Duration // from the answer before to this turn; 0 in the first
	User         Segment
	OutputTokens int // at least 1
}

// Random has one request a session, of random tokens: nothing is shared.
type Random struct {
	Vocabulary
	InputTokens, OutputTokens int // mean lengths
	// RangeRatio spreads lengths evenly over [n - n*RangeRatio, n + n*RangeRatio].
	// Source: vllm/benchmarks/datasets.py, RandomDataset.
	RangeRatio float64
	Seed       uint64
}

func (d *Random) Sessions() int { return 0 }
func (d *Random) Turns() int    { return 1 }

func (d *Random) String() string {
	return fmt.Sprintf("random: %d in, %d out, range ratio %g, of %v", d.InputTokens, d.OutputTokens, d.RangeRatio, d.Vocabulary)
}

func (d *Random) Session(i int) Session {
	rng := rand.New(rand.NewPCG(d.Seed, promptStream+uint64(i)))
	in, out := spread(rng, d.InputTokens, d.RangeRatio), spread(rng, d.OutputTokens, d.RangeRatio)
	return Session{Turns: []Turn{{User: d.segment(rng, in), OutputTokens: out}}}
}

// Validate says what is wrong with the lengths.
func (d *Random) Validate() error {
	return validateLengths(d.RangeRatio, length{"InputTokens", d.InputTokens}, length{"OutputTokens", d.OutputTokens})
}

// SharedPrefix has groups of requests that begin alike: SGLang's
// generated-shared-prefix (python/sglang/bench_serving.py).
type SharedPrefix struct {
	Vocabulary
	Groups, PromptsPerGroup    int
	PrefixTokens, SuffixTokens int // of a group, and of each request
	OutputTokens               int
	Ordered                    bool // group after group; else shuffled
	Seed                       uint64

	order []int // set by Shuffle
}

// NewSharedPrefix copies d, checks it and decides the order of its requests.
func NewSharedPrefix(d SharedPrefix) (*SharedPrefix, error) {
	err := validateLengths(0, length{"Groups", d.Groups}, length{"PromptsPerGroup", d.PromptsPerGroup}, length{"PrefixTokens", d.PrefixTokens},
		length{"SuffixTokens", d.SuffixTokens}, length{"OutputTokens", d.OutputTokens})
	if err != nil {
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
func (d *SharedPrefix) Turns() int    { return 1 }

func (d *SharedPrefix) String() string {
	return fmt.Sprintf("shared-prefix: %d groups of %d, prefix %d, suffix %d, %d out, of %v", d.Groups, d.PromptsPerGroup, d.PrefixTokens, d.SuffixTokens, d.OutputTokens, d.Vocabulary)
}

func (d *SharedPrefix) Session(i int) Session {
	n := d.order[i]
	prefix := rand.New(rand.NewPCG(d.Seed, prefixStream+uint64(n/d.PromptsPerGroup)))
	suffix := rand.New(rand.NewPCG(d.Seed, promptStream+uint64(n)))
	return Session{System: d.segment(prefix, d.PrefixTokens), Turns: []Turn{{User: d.segment(suffix, d.SuffixTokens), OutputTokens: d.OutputTokens}}}
}

// MultiTurn has conversations: each turn's prompt is all that was said, with the
// server's own answers, and InputTokens more.
type MultiTurn struct {
	Vocabulary
	TurnCount    int
	SystemTokens int // of the system prompt; may be 0
	Systems      int // system prompts, which conversations take in turns. Default: 1, the same in all
	InputTokens  int // of each turn, mean
	OutputTokens int // of each turn, mean
	RangeRatio   float64
	Think        time.Duration // mean time that a user takes to answer; exponential
	Seed         uint64
}

func (d *MultiTurn) Sessions() int { return 0 }
func (d *MultiTurn) Turns() int    { return d.TurnCount }

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

// Validate says what is wrong with the sizes.
func (d *MultiTurn) Validate() error {
	if d.SystemTokens < 0 || d.SystemTokens > MaxLength || d.Systems < 0 || d.Think < 0 {
		return fmt.Errorf("load: SystemTokens is %d, Systems %d and Think %v, want none below 0 and at most %d tokens", d.SystemTokens, d.Systems, d.Think, MaxLength)
	}
	return validateLengths(d.RangeRatio, length{"TurnCount", d.TurnCount}, length{"InputTokens", d.InputTokens}, length{"OutputTokens", d.OutputTokens})
}

// MaxLength is the most tokens that any one part of a prompt or an output may have.
const MaxLength = 1 << 24

type length struct {
	name  string
	value int
}

func validateLengths(ratio float64, all ...length) error {
	for _, l := range all {
		if l.value < 1 || l.value > MaxLength {
			return fmt.Errorf("load: %s is %d, want 1 to %d", l.name, l.value, MaxLength)
		}
	}
	if !(ratio >= 0 && ratio < 1) {
		return fmt.Errorf("load: RangeRatio is %v, want 0 or more and less than 1", ratio)
	}
	return nil
}

// spread draws a length around mean, at least 1.
func spread(rng *rand.Rand, mean int, ratio float64) int {
	if ratio == 0 {
		return mean
	}
	lo, hi := int(math.Floor(float64(mean)*(1-ratio))), int(math.Ceil(float64(mean)*(1+ratio)))
	return max(1, lo+rng.IntN(hi-lo+1))
}
