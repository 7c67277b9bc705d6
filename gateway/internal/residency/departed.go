package residency

import (
	"math"
	"sync"

	"github.com/coppice-llm/coppice/kv"
)

// departed lists shadows that have the device blocks of forgotten ranks. When a worker leaves, its prompts come to other workers
// soon. A store of blocks that the index still has only compares them. A shadow whose blocks are other ranks' by then goes at
// the cost of its runs, not of its blocks. Lookups skip shadows.
type departed struct {
	mu      sync.Mutex
	shadows []kv.Rank // oldest first
	seq     kv.WorkerID
}

// Departed ranks may have one block for every departedShare blocks of known ranks, so that the index grows by at most a
// quarter. Their number is bounded because each takes a bit in each run.
const (
	departedShare = 4
	mostDeparted  = DefaultRanks / 4
)

// depart makes the index keep the device blocks of h, a rank that is forgotten, and gives up those of the oldest departed ranks
// beyond the bounds.
func (x *Residency) depart(h kv.Rank) {
	d := &x.departed
	d.mu.Lock()
	d.seq++
	shadow := kv.Rank{Worker: d.seq, DP: math.MaxUint32}
	d.mu.Unlock()
	if x.index.Hand(h, shadow) {
		d.mu.Lock()
		d.shadows = append(d.shadows, shadow)
		d.mu.Unlock()
	}
	for x.departedTooMuch() && x.dropDeparted() {
	}
}

// departedTooMuch reports whether departed ranks are beyond a bound.
func (x *Residency) departedTooMuch() bool {
	x.mu.RLock()
	known := 0
	for h := range x.ranks { // a sum, in any order
		known += x.index.Held(h)
	}
	x.mu.RUnlock()
	d := &x.departed
	d.mu.Lock()
	defer d.mu.Unlock()
	blocks := 0
	for _, h := range d.shadows {
		blocks += x.index.Held(h)
	}
	return blocks > known/departedShare || len(d.shadows) > mostDeparted
}

// dropDeparted gives up the blocks of the rank that departed first. It reports whether there was one.
func (x *Residency) dropDeparted() bool {
	d := &x.departed
	d.mu.Lock()
	if len(d.shadows) == 0 {
		d.mu.Unlock()
		return false
	}
	first := d.shadows[0]
	d.shadows = d.shadows[1:]
	d.mu.Unlock()
	x.index.Forget(first)
	return true
}
