package router

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Policy is the cost function of a worker. The lowest cost is chosen, or a low one, see
// [Weights.Temperature].
type Policy uint8

// The policies. bs is the block size and isl the prompt's number of tokens. overlap is the
// cached part of the prompt at the worker, in blocks weighted by [TierWeights] (not for
// CostCredits). Cost2025, Cost2026 and CostCredits are from Dynamo, lib/kv-router, at these
// dates.
const (
	// CostLatency is the predicted increase of all latencies, by [Profile]: the request's
	// time to its first token, its time to its other tokens, and the delay of other
	// requests' tokens by it.
	CostLatency Policy = iota
	// Cost2025: the negative of
	//
	//	Score·overlap·bs/isl − Usage·(blocks used/all) − Waiting·(waiting/most waiting of any)
	Cost2025
	// Cost2026 is Prefill·P + D. P is the number of prefill tokens of active requests and
	// of this one, divided by bs. D is the number of distinct blocks of active requests and
	// this one. Of equal costs the worker with the smallest tree in the index wins.
	Cost2026
	// CostCredits is Scale·max(0, P − credits) + D + Requests·active requests. P counts
	// the prompt as if nothing were cached. Each block of the overlap is a credit of
	// Device, Host or Disk (also for shared and object tiers). Decay multiplies Device by
	// 1/(1 + Decay·excess); excess is the worker's prefill blocks beyond the least loaded
	// worker's, divided by the request's blocks.
	CostCredits
	// CostRoundRobin is the number of the choice that took the worker last. The worker that has
	// not been chosen for the longest time has the lowest cost.
	CostRoundRobin
	// CostRandom is 0 for all workers, so all are tied and one is drawn at random.
	CostRandom
	// CostLeastLoaded is the number of active requests.
	CostLeastLoaded
	// CostPrefixHash is a hash of the worker and the prompt's first blocks, so that
	// prompts with equal beginnings go to one worker (rendezvous hashing, Thaler and
	// Ravishankar 1998).
	CostPrefixHash
)

var policyNames = enum.New[Policy]("router", "policy", "latency", "2025", "2026", "credits", "round-robin", "random", "least-loaded", "prefix-hash")

// Policies returns all policies.
func Policies() []Policy {
	return policyNames.Values()
}

func (p Policy) String() string { return policyNames.Name(p) }

// UnmarshalText reads a policy's name.
func (p *Policy) UnmarshalText(text []byte) error { return policyNames.Read(p, text) }

// termNames holds the names of each policy's terms, in the order in which scorer.cost fills the
// terms.
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

// Weights tune the policies: for all requests by SetWeights, for one request by Request.Weights.
// The limits keep costs finite. Start from [DefaultWeights]: a field that is 0 is a weight of 0,
// not a default.
type Weights struct {
	// Of Cost2025: overlap, used share of the pool, waiting requests.
	Score, Usage, Waiting float64 `min:"0" max:"1e9"`
	// Of Cost2026.
	Prefill float64 `min:"0" max:"1e9"`
	// Of CostCredits. Host and Disk are at most 1.
	Scale, Device   float64 `min:"0" max:"1e9"`
	Host, Disk      float64 `min:"0" max:"1"`
	Decay, Requests float64 `min:"0" max:"1e9"`
	// Of CostLatency. TTFT: the time to the request's first token. ITL: the time to its
	// other tokens, and the delay of other requests' tokens. Backlog: the time of its
	// prompt, once per request that waits for its first token at the worker.
	TTFT, ITL, Backlog float64 `min:"0" max:"1e9"`
	// Temperature 0 chooses the lowest cost. Otherwise a worker's chance is proportional to
	// exp(−(cost − lowest)/(Temperature·range)). Under SpreadRelative, range is the highest cost
	// minus the lowest, so the worst worker's chance is exp(−1/Temperature) times the best
	// one's, however near the costs are. Under SpreadAbsolute, range is 1, in the cost's unit.
	Temperature float64 `min:"0"`
	Spread      Spread
}

// Spread is the unit of a temperature.
type Spread uint8

// The spreads.
const (
	SpreadRelative Spread = iota
	SpreadAbsolute
)

var spreadNames = enum.New[Spread]("router", "spread", "relative", "absolute")

func (s Spread) String() string { return spreadNames.Name(s) }

// MarshalText returns String.
func (s Spread) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a spread's name.
func (s *Spread) UnmarshalText(text []byte) error { return spreadNames.Read(s, text) }

// DefaultWeights returns Dynamo's weights for its policies. For CostLatency, ITL 0.03
// makes a second of TTFT count as much as 33 seconds of other requests' delay:
//
//   - With ITL 0, all requests go to the workers with the prefix until the queue there
//     costs more than the prefix saves, and decoding rows pile up.
//   - With ITL 1, first tokens wait for the balance of rows.
//   - In simulation 0.03 is within 1 % of the lowest p99 of TTFT over prompts with all
//     kinds of shared prefixes and none, and has the lowest p99 of ITL. 0.02 and 0.05
//     are within 4 % of both.
//
// Backlog 0.3 keeps a busy fleet from computing one prefix everywhere at once: all
// requests that arrive while a worker has a queue wait for the prompts in it
// (bench/results/fleet.md).
func DefaultWeights() Weights {
	return Weights{
		Score: 2, Usage: 1, Waiting: 1, Prefill: 1, Scale: 1, Device: 1, Host: 0.75, Disk: 0.25, TTFT: 1, ITL: 0.03, Backlog: 0.3,
	}
}

// Validate returns every weight that is negative, not finite or above its limit.
func (w *Weights) Validate() error {
	err := bounds.Check("router: Weights", w)
	if !spreadNames.Has(w.Spread) {
		err = errors.Join(err, fmt.Errorf("router: Weights: Spread is %v, want %s", w.Spread, spreadNames.Names()))
	}
	return err
}

// weightNames are the names of the weights in texts, in the order of the fields of Weights.
var weightNames = []string{"score", "usage", "waiting", "prefill", "scale", "device", "host", "disk", "decay", "requests", "ttft", "itl", "backlog", "temperature"}

// WeightNames returns the names of the weights that the policy uses.
func (p Policy) WeightNames() []string {
	return slices.Clone([...][]string{
		CostLatency: {"ttft", "itl", "backlog", "temperature"},
		Cost2025:    {"score", "usage", "waiting", "temperature"},
		Cost2026:    {"prefill", "temperature"},
		CostCredits: {"scale", "device", "host", "disk", "decay", "requests", "temperature"},

		CostRoundRobin: {"temperature"}, CostRandom: {"temperature"}, CostLeastLoaded: {"temperature"}, CostPrefixHash: {"temperature"},
	}[p])
}

// Set changes the weight with the given name (see WeightNames; letter case does not matter). An
// unknown name is an error. The value is not checked: call Validate.
func (w *Weights) Set(name string, value float64) error {
	i := slices.Index(weightNames, strings.ToLower(name))
	if i < 0 {
		return fmt.Errorf("router: there is no weight %.40q, but %s", name, strings.Join(weightNames, ", "))
	}
	reflect.ValueOf(w).Elem().Field(i).SetFloat(value)
	return nil
}

// TierWeights is the value of a cached block by its tier: 1 for a block that is as good as on
// the device, 0 for one that is as bad as absent. A block below the device must be fetched, and
// may be gone by then. The weights apply to CostLatency, Cost2025 and Cost2026; CostCredits has
// its own. An index does not keep blocks in unknown tiers, so they have no weight.
type TierWeights [kv.Tiers]float64

// DefaultTierWeights returns device 1, host 0.8, disk 0.6, shared 0.4, object 0.2.
func DefaultTierWeights() TierWeights {
	return TierWeights{kv.TierDevice: 1, kv.TierHost: 0.8, kv.TierDisk: 0.6, kv.TierShared: 0.4, kv.TierObject: 0.2}
}

func (w TierWeights) String() string {
	var parts []string
	for t := range kv.Tier(kv.Tiers) {
		parts = append(parts, fmt.Sprintf("%v=%v", t, w[t]))
	}
	return strings.Join(parts, ",")
}

// MarshalText returns String.
func (w TierWeights) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads pairs of tier and weight as String writes them, for example
// "host=0.9,disk=0.5". Tiers without a pair get their defaults. An unknown or repeated tier or a
// bad weight is an error, and then w does not change.
func (w *TierWeights) UnmarshalText(text []byte) error {
	weights, seen := DefaultTierWeights(), [kv.Tiers]bool{}
	for pair := range strings.SplitSeq(string(text), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		t := kv.Tier(0)
		for t < kv.Tiers && t.String() != name {
			t++
		}
		x, err := strconv.ParseFloat(value, 64)
		if t == kv.Tiers || err != nil || seen[t] {
			return fmt.Errorf("router: %.40q is no tier and its weight, as in %v, each tier once", pair, DefaultTierWeights())
		}
		weights[t], seen[t] = x, true
	}
	if err := weights.Validate(); err != nil {
		return err
	}
	*w = weights
	return nil
}

// Validate returns an error that names every weight outside 0 to 1. Weights that are all 0 are
// an error too, because a Config takes them as not set.
func (w TierWeights) Validate() error {
	var errs []error
	for t, x := range w {
		if !(x >= 0 && x <= 1) {
			errs = append(errs, fmt.Errorf("router: TierWeights of %v is %v, want 0 to 1", kv.Tier(t), x))
		}
	}
	if w == (TierWeights{}) {
		errs = append(errs, errors.New("router: TierWeights are all 0"))
	}
	return errors.Join(errs...)
}

// blocks returns the sum of the blocks of o, each multiplied by the weight of its tier.
func (w *TierWeights) blocks(o *Overlap) float64 {
	sum := w[kv.TierDevice] * float64(o.Device)
	if o.Host|o.Disk|o.Shared|o.Object != 0 {
		for t, n := range [...]int{o.Host, o.Disk, o.Shared, o.Object} {
			sum += w[int(kv.TierHost)+t] * float64(n)
		}
	}
	return sum
}
