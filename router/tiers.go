package router

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

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
