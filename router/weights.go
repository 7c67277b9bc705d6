package router

import (
	"errors"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/enum"
)

// Policy says what the cost of a worker is; the one with the lowest is chosen, or
// a low one, see [Weights.Temperature].
type Policy uint8

// The policies. bs is the block size, isl the prompt's tokens; the overlap is what
// the worker has of it, in blocks weighed by [TierWeights] but for CostCredits. Formulas of the first three: Dynamo, lib/kv-router, at the
// dates that they are named after.
const (
	// CostLatency is the predicted increase of all latencies, see [Profile]: the
	// time to the first token of the request, and what it will wait for its others,
	// and those of other requests for it.
	CostLatency Policy = iota
	// Cost2025: the negative of
	//
	//	Score·overlap·bs/isl − Usage·(blocks used/all) − Waiting·(waiting/most waiting of any)
	Cost2025
	// Cost2026: Prefill·P + D, with P the prefill tokens of active requests and this
	// one over bs, and D the distinct blocks of active requests and this one. Of
	// equal costs the smallest tree in the index wins.
	Cost2026
	// CostCredits: Scale·max(0, P − credits) + D + Requests·active requests, with P
	// as if nothing were cached and for each block of the overlap Device, Host or
	// Disk (for shared and object tiers too) as credit. Decay lowers Device by 1/(1 + Decay·excess), where the excess
	// is how many prefill blocks more than the least loaded a worker has, over those
	// of the request.
	CostCredits
	// CostRoundRobin is when the worker was chosen last.
	CostRoundRobin
	// CostRandom is the same for all.
	CostRandom
	// CostLeastLoaded is the number of active requests.
	CostLeastLoaded
	// CostPrefixHash is a hash of worker and the prompt's first blocks, so that equal
	// beginnings go to one worker (rendezvous hashing, Thaler and Ravishankar 1998).
	CostPrefixHash
)

var policyNames = enum.New[Policy]("router", "policy", "latency", "2025", "2026", "credits", "round-robin", "random", "least-loaded", "prefix-hash")

// Policies are all of them.
func Policies() []Policy {
	return policyNames.Values()
}

func (p Policy) String() string { return policyNames.Name(p) }

// UnmarshalText reads a policy's name.
func (p *Policy) UnmarshalText(text []byte) error { return policyNames.Read(p, text) }

// terms are the names of what [Candidate.Terms] has for a policy.
func (p Policy) terms() []string { return termNames[p] }

var termNames = [...][]string{
	CostLatency:     {"ttft", "own", "others", "backlog"},
	Cost2025:        {"score", "usage", "waiting"},
	Cost2026:        {"prefill", "decode", "tree"},
	CostCredits:     {"prefill", "credits", "decode"},
	CostRoundRobin:  {"last"},
	CostRandom:      {},
	CostLeastLoaded: {"requests"},
	CostPrefixHash:  {"hash"},
}

// Weights tune the policies, live by SetWeights and for one request by
// Request.Weights. Start from [DefaultWeights]: zeros count.
type Weights struct {
	// Of Cost2025.
	Score, Usage, Waiting float64
	// Of Cost2026.
	Prefill float64
	// Of CostCredits. Host and Disk are at most 1.
	Scale, Device, Host, Disk, Decay, Requests float64
	// Of CostLatency: TTFT of the time to the request's first token; ITL of the
	// waiting for its other tokens, and of others for it; Backlog of the time that its
	// prompt takes, for each request that waits for its first token at the worker.
	TTFT, ITL, Backlog float64
	// Temperature 0 chooses the lowest cost. Above, a worker's chance is
	// proportional to exp(−(cost − lowest)/(Temperature·range)): under
	// SpreadRelative the range is that of the costs, so the worst worker has
	// exp(−1/Temperature) times the best one's chance, however near they are; under
	// SpreadAbsolute it is 1, in the cost's own unit.
	Temperature float64
	Spread      Spread
}

// Spread says what a temperature is relative to.
type Spread uint8

// The spreads.
const (
	SpreadRelative Spread = iota
	SpreadAbsolute
)

var spreadNames = enum.New[Spread]("router", "spread", "relative", "absolute")

func (s Spread) String() string { return spreadNames.Name(s) }

// MarshalText is String.
func (s Spread) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a spread's name.
func (s *Spread) UnmarshalText(text []byte) error { return spreadNames.Read(s, text) }

// DefaultWeights are Dynamo's for its policies. For CostLatency a second to the
// first token counts as 33 of waiting for others: with 0 all go where the cache is
// until the queue there is longer than what it saves, and decoding rows pile up;
// with 1 the first token waits for the balance of rows. In simulation 0.03 is within
// 1 % of the lowest p99 of TTFT over shared prefixes of all kinds and none, and has the
// lowest of ITL; 0.02 and 0.05 are within 4 % of both. Backlog keeps a fleet that is
// behind from computing a prefix everywhere at once: what a worker computes, all wait
// for who come while it has a queue (bench/results/fleet.md).
func DefaultWeights() Weights {
	return Weights{
		Score: 2, Usage: 1, Waiting: 1, Prefill: 1, Scale: 1, Device: 1, Host: 0.75, Disk: 0.25, TTFT: 1, ITL: 0.03, Backlog: 0.3,
	}
}

// Validate reports every weight that is negative, not finite or above its limit.
func (w *Weights) Validate() error {
	if w.sound() {
		return nil
	}
	var errs []error
	for _, f := range w.fields() {
		if !(f.value >= 0 && f.value <= f.most) {
			errs = append(errs, fmt.Errorf("router: Weights.%s is %v, want 0 to %v", f.name, f.value, f.most))
		}
	}
	if !spreadNames.Has(w.Spread) {
		errs = append(errs, fmt.Errorf("router: Weights.Spread is %v, want %s", w.Spread, spreadNames.Names()))
	}
	return errors.Join(errs...)
}

// maxWeight keeps costs finite.
const maxWeight = 1e9

type weightField struct {
	name        string
	value, most float64
}

func (w *Weights) fields() [14]weightField {
	return [...]weightField{
		{"Score", w.Score, maxWeight}, {"Usage", w.Usage, maxWeight}, {"Waiting", w.Waiting, maxWeight},
		{"Prefill", w.Prefill, maxWeight}, {"Scale", w.Scale, maxWeight}, {"Device", w.Device, maxWeight},
		{"Host", w.Host, 1}, {"Disk", w.Disk, 1}, {"Decay", w.Decay, maxWeight}, {"Requests", w.Requests, maxWeight},
		{"TTFT", w.TTFT, maxWeight}, {"ITL", w.ITL, maxWeight}, {"Backlog", w.Backlog, maxWeight}, {"Temperature", w.Temperature, math.MaxFloat64},
	}
}

// sound is Validate without words.
func (w *Weights) sound() bool {
	for _, f := range w.fields() {
		if !(f.value >= 0 && f.value <= f.most) {
			return false
		}
	}
	return spreadNames.Has(w.Spread)
}
