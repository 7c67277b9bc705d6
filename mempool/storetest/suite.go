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

// Options are the options with which a check opens a store.
type Options struct {
	Dir      string
	Identity mempool.Identity
	Extents  int // capacity: at least this many full extents, at most twice as many
	Workers  int
	MaxOps   int
	Inject   *blockio.Injector // must see the store's calls; it has no faults at the start
}

// Harness opens the store under test.
type Harness struct {
	Open    func(o Options) (mempool.Store, error)
	Durable bool            // a second Open of the directory finds the extents of the first
	Faults  []blockio.Point // kinds of calls that the store makes and that may fail
}

// Identity returns the identity of the suite's extents: 4 pages of 4 tokens and 1020 bytes each.
// 1020 is no multiple of the 512 or 4096 bytes that direct I/O requires.
func Identity() mempool.Identity {
	return mempool.Identity{ModelID: "model", NumericsID: "numerics", KVType: kv.F32, PageLayout: mempool.PageLayout,
		Layout: mempool.Layout{PageTokens: 4, PageBytes: 1020, ExtentPages: 4}}
}

// check tests one promise of a store.
type check struct {
	name    string
	run     func(*rig)
	durable bool // applies only to stores that outlive the process
}

// checks returns all checks in the order of Run.
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
		{"GivenUp", checkGivenUp, false},
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

// Run runs all checks, each with its own store.
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

// judge runs one check, and then looks for descriptors and temporary files that the closed store
// has left.
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

// descriptors lists the files that the process has open, on systems with /proc.
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
