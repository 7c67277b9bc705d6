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

// Check tests one promise.
type Check struct {
	Name string
	run  func(h *harness) // fails if the promise is broken
	// needs reports whether backends with this Info make the promise; nil: all do.
	needs func(info *engine.Info) bool
	moves bool // only a Mover makes the promise
	// harmless changes a backend so that it still makes the promise: the controls that change it in the
	// same way are then found for their faults. nil for none.
	harmless func(engine.Backend) engine.Backend
}

// Checks returns all checks, in the order of Run.
func Checks() []Check {
	return []Check{
		{Name: "batch-mix", run: checkBatchMix},
		{Name: "chunking", run: checkChunking},
		{Name: "page-size", run: checkPageSize},
		{Name: "page-permutation", run: checkPagePermutation},
		{Name: "page-tables", run: checkTables},
		{Name: "copy-on-write", run: checkCopyOnWrite},
		{Name: "in-batch-sharing", run: checkInBatchSharing},
		{Name: "deferred", run: checkDeferred},
		{Name: "preempt-resume", run: checkPreemptResume},
		{Name: "moves", run: checkMoves, moves: true},
		{Name: "slot-reuse", run: checkSlotReuse},
		{Name: "ownership", run: checkOwnership},
		{Name: "stale-poison", run: checkStalePoison, moves: true},
		{Name: "row-error", run: checkRowError, moves: true},
		{Name: "seed", run: checkSeed},
		{Name: "penalties", run: checkPenalties, needs: func(info *engine.Info) bool { return info.Capabilities.Penalties }},
		{Name: "mask", run: checkMask, needs: offersMasks},
		{Name: "masks", run: checkMasks, needs: offersMasks},
		{Name: "bias", run: checkBias},
		{Name: "logprobs", run: checkLogprobs, needs: offersLogprobs},
		{Name: "prompt-logprobs", run: checkPromptLogprobs, needs: offersPrompt},
		{Name: "embedding", run: checkEmbedding, needs: offersHidden},
		{Name: "drafts", run: checkDrafts, needs: takesDrafts, harmless: inPlaceOf(noDraftFault)},
		{Name: "draft-errors", run: checkDraftErrors, needs: func(info *engine.Info) bool { return takesDrafts(info) && offersMasks(info) }},
		{Name: "answers", run: checkAnswers},
		{Name: "validation", run: checkValidation},
		{Name: "busy", run: checkBusy},
		{Name: "close", run: checkClose},
		{Name: "stats", run: checkStats},
	}
}

func offersMasks(info *engine.Info) bool    { return info.MaxMasks > 0 }
func offersLogprobs(info *engine.Info) bool { return info.Capabilities.Logprobs }
func offersPrompt(info *engine.Info) bool   { return info.Capabilities.PromptLogprobs }

// Run runs every check as a subtest. It leaves out the checks of promises that the backend's Info
// excludes, those of moves if the backend is no Mover, and those named in except, which a
// backend's test gives with a reason.
func Run(t *testing.T, f Factory, except ...string) {
	checks, _ := selected(t, f, except)
	for _, c := range checks {
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
	checks, info := selected(t, f, except)
	for _, c := range checks {
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
		if c.harmless != nil {
			if err := run(t, f, c, c.harmless); err != nil {
				t.Errorf("check %q fails a backend that is changed and sound: %v", c.Name, err)
			}
		}
	}
}

// Try runs the named check and returns its error. It is for controls that only a backend's own
// tests can make, such as a kernel with another summation order.
func Try(t testing.TB, f Factory, check string) error {
	t.Helper()
	return run(t, f, named(t, check), nil)
}

// selected returns the Info of a backend of the factory, and the checks that apply to the backend
// and are not in except.
func selected(t *testing.T, f Factory, except []string) (checks []Check, info *engine.Info) {
	for _, name := range except {
		named(t, name)
	}
	b := f(t, usual(16))
	defer b.Close()
	_, mover := b.(engine.Mover)
	made := b.Info()
	for _, c := range Checks() {
		if !slices.Contains(except, c.Name) && (c.needs == nil || c.needs(&made)) && (mover || !c.moves) {
			checks = append(checks, c)
		}
	}
	return checks, &made
}

// named returns the check of this name. The test ends if there is none.
func named(t testing.TB, name string) Check {
	t.Helper()
	all := Checks()
	i := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("enginetest: there is no check %q", name)
	}
	return all[i]
}

// run runs a check against backends of the factory, in wrap if that is not nil, and returns its
// failure, or nil.
func run(t testing.TB, f Factory, c Check, wrap func(engine.Backend) engine.Backend) (err error) {
	h := &harness{t: t, factory: f, wrap: wrap}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	defer h.close()
	c.run(h)
	return nil
}
