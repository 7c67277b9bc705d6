package enginetest

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
)

// Options are what a check needs of a backend. All are set.
type Options struct {
	PageTokens, Pages, MaxSlots, MaxRows, MaxTokens, MaxInflight int
}

// Factory opens a backend of that size over the same model each time: vocabulary
// of at least 128 tokens, at least 128 positions. The suite closes it; closing it
// again must do nothing. It ends the test if it can't.
type Factory func(t testing.TB, o Options) engine.Backend

// Check is one promise. Run gives an error that tells how it is broken.
type Check struct {
	Name string
	Run  func(h *Harness) error
	// needs reports whether a backend that can do so much makes the promise; nil: all do.
	needs func(can engine.Capabilities) bool
	moves bool // it is made of backends that are movers
}

func (c *Check) applies(can engine.Capabilities, mover bool) bool {
	return (c.needs == nil || c.needs(can)) && (mover || !c.moves)
}

// Checks are all of them, in the order of Run.
func Checks() []Check {
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
		{Name: "penalties", Run: checkPenalties, needs: func(can engine.Capabilities) bool { return can.Penalties }},
		{Name: "mask", Run: checkMask},
		{Name: "bias", Run: checkBias},
		{Name: "logprobs", Run: checkLogprobs, needs: func(can engine.Capabilities) bool { return can.Logprobs }},
		{Name: "prompt-logprobs", Run: checkPromptLogprobs, needs: func(can engine.Capabilities) bool { return can.PromptLogprobs }},
		{Name: "answers", Run: checkAnswers},
		{Name: "validation", Run: checkValidation},
		{Name: "busy", Run: checkBusy},
		{Name: "close", Run: checkClose},
		{Name: "stats", Run: checkStats},
	}
}

// Run runs every check as a subtest, but those of what the backend's Info says that it
// can't do or that only movers do, and those named in except, which a backend lists with its reason.
func Run(t *testing.T, f Factory, except ...string) {
	known(t, except)
	can, mover := capabilities(t, f)
	for _, c := range Checks() {
		if slices.Contains(except, c.Name) || !c.applies(can, mover) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if err := run(t, f, c, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// RunControls runs every check against backends broken on purpose, made from
// f's, and fails where a check passes. It shows that Run can fail.
func RunControls(t *testing.T, f Factory, except ...string) {
	known(t, except)
	can, mover := capabilities(t, f)
	for _, c := range Checks() {
		if slices.Contains(except, c.Name) || !c.applies(can, mover) {
			continue
		}
		n := 0
		for _, k := range controls(can) {
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

// Try runs the check of that name and gives what it finds, for controls that only a
// backend's own tests can make, such as a kernel with another order of sums.
func Try(t testing.TB, f Factory, check string) error {
	t.Helper()
	i := slices.IndexFunc(Checks(), func(c Check) bool { return c.Name == check })
	if i < 0 {
		t.Fatalf("enginetest: there is no check %q", check)
	}
	return run(t, f, Checks()[i], nil)
}

// capabilities asks a backend of the factory what it gives, and whether it is a mover.
func capabilities(t *testing.T, f Factory) (engine.Capabilities, bool) {
	t.Helper()
	b := f(t, usual(16))
	defer b.Close()
	_, mover := b.(engine.Mover)
	return b.Info().Capabilities, mover
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
