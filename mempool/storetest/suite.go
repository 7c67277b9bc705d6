package storetest

import (
	"bytes"
	"crypto/rand"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// Options are the options with which a check opens a store.
type Options struct {
	Dir      string
	Identity mempool.Identity
	Extents  int // capacity: at least this many full extents, at most twice as many
	Workers  int
	MaxOps   int
	Sealer   *record.Sealer    // that of the Harness
	Inject   *blockio.Injector // must see the store's calls; it has no faults at the start
}

// Harness opens the store under test.
type Harness struct {
	Open    func(o Options) (mempool.Store, error)
	Durable bool            // a second Open of the directory finds the extents of the first
	Faults  []blockio.Point // kinds of calls that the store makes and that may fail
	Sealer  *record.Sealer  // seals the records; nil: they are not sealed
}

// options returns options with the harness's Sealer and an Injector without faults.
func (h *Harness) options(dir string, extents, workers, maxOps int) Options {
	o := Options{Dir: dir, Identity: Identity(), Extents: extents, Workers: workers, MaxOps: maxOps, Sealer: h.Sealer}
	o.Inject = &blockio.Injector{}
	o.Identity.Sealed = h.Sealer != nil
	return o
}

// Identity returns the identity of the suite's extents: 4 pages of 4 tokens and 1020 bytes each.
// 1020 is no multiple of the 512 or 4096 bytes that direct I/O requires.
func Identity() mempool.Identity {
	return mempool.Identity{ModelID: "model", NumericsID: "numerics", KVType: kv.F32, PageLayout: mempool.PageLayout,
		Layout: mempool.Layout{PageTokens: 4, PageBytes: 1020, ExtentPages: 4}}
}

// Sealer returns a Sealer whose secrets are bytes of the given values.
func Sealer(t testing.TB, secrets ...byte) *record.Sealer {
	t.Helper()
	var long [][]byte
	for _, b := range secrets {
		long = append(long, bytes.Repeat([]byte{b}, record.MinSecretBytes))
	}
	s, err := record.NewSealer(rand.Reader, long...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check tests one promise of a store.
type check struct {
	name    string
	run     func(*rig)
	durable bool // applies only to stores that outlive the process
	shared  bool // applies only to stores that several processes share
}

// applies reports whether a store with this harness and description must pass the check.
func (c *check) applies(h *Harness, shared bool) bool {
	return (!c.durable || h.Durable) && (!c.shared || shared)
}

// checks returns all checks in the order of Run.
func checks() []check {
	return []check{
		{name: "RoundTrip", run: checkRoundTrip},
		{name: "PartOfExtent", run: checkPart},
		{name: "Probe", run: checkProbe},
		{name: "Identity", run: checkIdentity},
		{name: "Order", run: checkOrder},
		{name: "Whole", run: checkWhole},
		{name: "Refused", run: checkRefused},
		{name: "Capacity", run: checkCapacity},
		{name: "Sum", run: checkSum},
		{name: "Deadline", run: checkDeadline},
		{name: "NoAnswer", run: checkNoAnswer},
		{name: "GivenUp", run: checkGivenUp},
		{name: "Cancel", run: checkCancel},
		{name: "Busy", run: checkBusy},
		{name: "Close", run: checkClose},
		{name: "Faults", run: checkFaults},
		{name: "ReadOnce", run: checkReadOnce},
		{name: "Concurrent", run: checkConcurrent},
		{name: "Random", run: checkRandom},
		{name: "Reopen", run: checkReopen, durable: true},
		{name: "ReopenFewer", run: checkReopenFewer, durable: true},
		{name: "OtherIdentity", run: checkOther, durable: true},
		{name: "Damage", run: checkDamage, durable: true},
		{name: "OwnFault", run: checkOwnFault, shared: true},
		{name: "Pipe", run: checkPipe, shared: true},
		{name: "FutureLease", run: checkFutureLease, shared: true},
	}
}

// Run runs all checks, each with its own store.
func Run(t *testing.T, h Harness) {
	shared := isShared(t, h)
	for _, c := range checks() {
		if c.applies(&h, shared) {
			t.Run(c.name, func(t *testing.T) {
				judge(t, h, c, patience)
				leaks.Check(t)
			})
		}
	}
}

// isShared reports whether several processes share the stores of h.
func isShared(t *testing.T, h Harness) bool {
	t.Helper()
	s, err := h.Open(h.options(t.TempDir(), 4, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Info().Shared
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
