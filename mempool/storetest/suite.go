package storetest

import (
	"os"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// Options are what a check opens a store with.
type Options struct {
	Dir      string
	Identity mempool.Identity
	Extents  int // full extents that must fit, and not many more
	Workers  int
	MaxOps   int
	Inject   *blockio.Injector // at the store's calls; plants nothing until told
}

// Harness opens the store under test.
type Harness struct {
	Open    func(o Options) (mempool.Store, error)
	Durable bool            // a second Open of the directory finds what was there
	Faults  []blockio.Point // where the store makes calls that may fail
}

// Identity is that of the suite's extents: pages of 4 tokens and 1020 bytes, which are no
// multiple of what direct I/O asks for, 4 in an extent.
func Identity() mempool.Identity {
	return mempool.Identity{ModelID: "model", NumericsID: "numerics", KVType: kv.F32, PageLayout: mempool.PageLayout,
		Layout: mempool.Layout{PageTokens: 4, PageBytes: 1020, ExtentPages: 4}}
}

// Run runs all checks, each with a store of its own.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name  string
		check func(*rig)
		when  bool
	}{
		{"RoundTrip", checkRoundTrip, true},
		{"PartOfExtent", checkPart, true},
		{"Identity", checkIdentity, true},
		{"Order", checkOrder, true},
		{"Refused", checkRefused, true},
		{"Capacity", checkCapacity, true},
		{"Sum", checkSum, true},
		{"Deadline", checkDeadline, true},
		{"Cancel", checkCancel, true},
		{"Busy", checkBusy, true},
		{"Close", checkClose, true},
		{"Faults", checkFaults, true},
		{"ReadOnce", checkReadOnce, true},
		{"Concurrent", checkConcurrent, true},
		{"Random", checkRandom, true},
		{"Reopen", checkReopen, h.Durable},
		{"ReopenFewer", checkReopenFewer, h.Durable},
		{"OtherIdentity", checkOther, h.Durable},
		{"Damage", checkDamage, h.Durable},
	} {
		if c.when {
			t.Run(c.name, func(t *testing.T) {
				fds := descriptors()
				r := newRig(t, h)
				c.check(r)
				r.close()
				leaks.Check(t)
				if after := descriptors(); len(after) > len(fds) {
					t.Errorf("descriptors %v were open before, %v are after Close", fds, after)
				}
				temporary(t, r.opts.Dir)
			})
		}
	}
}

// descriptors lists what the process has open, where the system says so.
func descriptors() []string {
	var open []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to != "/proc" && !slices.Contains([]string{"pipe", "anon", "sock"}, to[:min(4, len(to))]) {
			open = append(open, to)
		}
	}
	return open
}
