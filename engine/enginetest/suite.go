package enginetest

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
)

// Options configures a backend for a check. All fields are set.
type Options struct {
	PageTokens, Pages, MaxSlots, MaxRows, MaxTokens, MaxInflight int
}

// Factory opens a backend with the given options, over the same model each time: a vocabulary of
// at least 128 tokens and at least 128 positions. The suite closes the backend; a second Close
// must do nothing. If the factory can't open a backend, it ends the test.
type Factory func(t testing.TB, o Options) engine.Backend

// Check tests one promise. Run returns an error that describes how the promise is broken.
type Check struct {
	Name string
	Run  func(h *Harness) error
	// needs reports whether backends with this Info make the promise; nil: all do.
	needs func(info *engine.Info) bool
	moves bool // only a Mover makes the promise
}

func (c *Check) applies(info *engine.Info, mover bool) bool {
	return (c.needs == nil || c.needs(info)) && (mover || !c.moves)
}

// Checks returns all checks, in the order of Run.
func Checks() []Check {
	masks := func(info *engine.Info) bool { return info.MaxMasks > 0 }
	return []Check{
		{Name: "batch-mix", Run: checkBatchMix},
		{Name: "chunking", Run: checkChunking},
		{Name: "page-size", Run: checkPageSize},
		{Name: "page-permutation", Run: checkPagePermutation},
		{Name: "page-tables", Run: checkTables},
		{Name: "copy-on-write", Run: checkCopyOnWrite},
		{Name: "in-batch-sharing", Run: checkInBatchSharing},
		{Name: "deferred", Run: checkDeferred},
		{Name: "preempt-resume", Run: checkPreemptResume},
		{Name: "moves", Run: checkMoves, moves: true},
		{Name: "slot-reuse", Run: checkSlotReuse},
		{Name: "stale-poison", Run: checkStalePoison, moves: true},
		{Name: "row-error", Run: checkRowError, moves: true},
		{Name: "seed", Run: checkSeed},
		{Name: "penalties", Run: checkPenalties, needs: func(info *engine.Info) bool { return info.Capabilities.Penalties }},
		{Name: "mask", Run: checkMask, needs: masks},
		{Name: "masks", Run: checkMasks, needs: masks},
		{Name: "bias", Run: checkBias},
		{Name: "logprobs", Run: checkLogprobs, needs: func(info *engine.Info) bool { return info.Capabilities.Logprobs }},
		{Name: "prompt-logprobs", Run: checkPromptLogprobs, needs: func(info *engine.Info) bool { return info.Capabilities.PromptLogprobs }},
		{Name: "answers", Run: checkAnswers},
		{Name: "validation", Run: checkValidation},
		{Name: "busy", Run: checkBusy},
		{Name: "close", Run: checkClose},
		{Name: "stats", Run: checkStats},
	}
}

// Run runs every check as a subtest. It leaves out the checks of promises that the backend's Info
// excludes, those of moves if the backend is no Mover, and those named in except, which a
// backend's test gives with a reason.
func Run(t *testing.T, f Factory, except ...string) {
	known(t, except)
	info, mover := describe(t, f)
	for _, c := range Checks() {
		if slices.Contains(except, c.Name) || !c.applies(info, mover) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if err := run(t, f, c, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// RunControls runs every check against its controls, which are backends of f, each broken on
// purpose. It fails if a check passes a control. So it shows that Run can fail.
func RunControls(t *testing.T, f Factory, except ...string) {
	known(t, except)
	info, mover := describe(t, f)
	for _, c := range Checks() {
		if slices.Contains(except, c.Name) || !c.applies(info, mover) {
			continue
		}
		n := 0
		for _, k := range controls(info) {
			if k.check != c.Name {
				continue
			}
			n++
			t.Run(c.Name+"/"+k.name, func(t *testing.T) {
				err := run(t, f, c, k.wrap)
				if err == nil {
					t.Fatalf("check %q passes a backend that %s", c.Name, k.name)
				}
				t.Log(err)
			})
		}
		if n == 0 {
			t.Errorf("check %q has no control", c.Name)
		}
	}
}

// Try runs the named check and returns its error. It is for controls that only a backend's own
// tests can make, such as a kernel with another summation order.
func Try(t testing.TB, f Factory, check string) error {
	t.Helper()
	i := slices.IndexFunc(Checks(), func(c Check) bool { return c.Name == check })
	if i < 0 {
		t.Fatalf("enginetest: there is no check %q", check)
	}
	return run(t, f, Checks()[i], nil)
}

// describe returns the Info of a backend of the factory, and whether it is a mover.
func describe(t *testing.T, f Factory) (*engine.Info, bool) {
	t.Helper()
	b := f(t, usual(16))
	defer b.Close()
	_, mover := b.(engine.Mover)
	info := b.Info()
	return &info, mover
}

func known(t *testing.T, names []string) {
	t.Helper()
	for _, n := range names {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return c.Name == n }) {
			t.Fatalf("enginetest: there is no check %q to leave out", n)
		}
	}
}

func run(t testing.TB, f Factory, c Check, wrap func(engine.Backend) engine.Backend) error {
	h := &Harness{t: t, factory: f, wrap: wrap}
	defer h.close()
	return c.Run(h)
}
