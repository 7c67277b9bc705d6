package storetest

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
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

// check is one promise of a store.
type check struct {
	name    string
	run     func(*rig)
	durable bool // only of stores that outlive the process
}

// checks are all of them, in the order of Run.
func checks() []check {
	return []check{
		{"RoundTrip", checkRoundTrip, false},
		{"PartOfExtent", checkPart, false},
		{"Probe", checkProbe, false},
		{"Identity", checkIdentity, false},
		{"Order", checkOrder, false},
		{"Whole", checkWhole, false},
		{"Refused", checkRefused, false},
		{"Capacity", checkCapacity, false},
		{"Sum", checkSum, false},
		{"Deadline", checkDeadline, false},
		{"Cancel", checkCancel, false},
		{"Busy", checkBusy, false},
		{"Close", checkClose, false},
		{"Faults", checkFaults, false},
		{"ReadOnce", checkReadOnce, false},
		{"Concurrent", checkConcurrent, false},
		{"Random", checkRandom, false},
		{"Reopen", checkReopen, true},
		{"ReopenFewer", checkReopenFewer, true},
		{"OtherIdentity", checkOther, true},
		{"Damage", checkDamage, true},
	}
}

// Run runs all checks, each with a store of its own.
func Run(t *testing.T, h Harness) {
	for _, c := range checks() {
		if !c.durable || h.Durable {
			t.Run(c.name, func(t *testing.T) {
				judge(t, h, c, patience)
				leaks.Check(t)
			})
		}
	}
}

// judge runs one check, and looks for what the closed store has left.
func judge(t testing.TB, h Harness, c check, patience time.Duration) {
	fds := descriptors()
	r := newRig(t, h)
	r.patience = patience
	c.run(r)
	r.close()
	if after := descriptors(); len(after) > len(fds) {
		t.Errorf("descriptors %v were open before, %v are after Close", fds, after)
	}
	temporary(t, r.opts.Dir)
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
