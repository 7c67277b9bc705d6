package schedtest

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coppice-llm/coppice/internal/invariants"
	"github.com/coppice-llm/coppice/scheduler"
)

var (
	seedCount = flag.Int("seeds", 30, "how many worlds TestSeeds and its like play")
	firstSeed = flag.Uint64("first", 1, "the first seed of TestSeeds")
	stepCount = flag.Int("steps", 300, "plans while requests arrive, in TestSeeds")
)

// eachSeed runs worlds on all processors; each world is single-threaded. Every other one has
// faults.
func eachSeed(t *testing.T, first uint64, n int, play func(Options) error) {
	t.Helper()
	var next atomic.Int64
	var failures atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for failures.Load() < 5 {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				seed := first + uint64(i)
				if err := play(Options{Seed: seed, Steps: *stepCount, Faults: seed%2 == 0}); err != nil {
					failures.Add(1)
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// TestSeeds: whatever requests, aborts and faults occur, with any pool, page size, chunk and
// policy, no checker fails. To run thousands:
//
//	go test ./scheduler/schedtest -run 'TestSeeds|TestTwins' -timeout 1h -args -seeds=10000
func TestSeeds(t *testing.T) {
	n := *seedCount
	if invariants.Enabled {
		n = min(n, 30)
	}
	var mu sync.Mutex
	var sum Report
	steps := 0
	eachSeed(t, *firstSeed, n, func(o Options) error {
		r, err := Run(o)
		mu.Lock()
		defer mu.Unlock()
		steps += len(r.Steps)
		sum.add(&r)
		return err
	})
	t.Logf("%d worlds, %d steps, overtaken to %.2f and unfair to %.2f of the bounds\n%v", n, steps, sum.Longest, sum.Unfair, sum)
	if n >= 30 && !t.Failed() {
		sum.mustBeRich(t)
	}
}

// onceFailed are worlds that broke a promise once, with the cause.
var onceFailed = []struct {
	options Options
	cause   string
}{
	{Options{Seed: 26001, Steps: 300, Faults: true}, "a request that preempted others and still did not fit was in no lane"},
	{Options{Seed: 29034, Steps: 300, Faults: true}, "the same"},
	{Options{Seed: 12787, Steps: 300, Faults: true}, "the floor's checker mistook a resumed prompt for a running one"},
	{Options{Seed: 13496, Steps: 300, Faults: true}, "the same"},
	{Options{Seed: 22176, Steps: 300, Faults: true}, "a page was copied from a request that was given up, past the tokens that were known"},
	{Options{Seed: 212613, Steps: 300, Faults: true}, "a move that began on a lost device was taken for a broken promise"},
	{Options{Seed: 1706, Steps: 300, Fair: true}, "a request for which room is kept was admitted before its tenant's turn"},
	{Options{Seed: 1854, Steps: 300, Fair: true}, "the same"},
	{Options{Seed: 188, Steps: 300, Fair: true, Faults: true}, "a sequence without a row ended while the plan that bound its slot was in flight, and rewrote the page list that the bind names"},
	{Options{Seed: 271, Steps: 300, Fair: true}, "the same"},
	{Options{Seed: 91500137, Steps: 300, Faults: true, Tiers: true}, "a drop of wrong KV waited for a child that another process had written meanwhile"},
	{Options{Seed: 94001670, Steps: 300, Faults: true, Tiers: true}, "wrong KV that another request had fetched in part and stored under a key of its own stayed in the host tier"},
	{Options{Seed: 96000063, Steps: 300, Faults: true, Tiers: true}, "writes of wrong KV went on under a parent that another request had written"},
	{Options{Seed: 96000265, Steps: 300, Faults: true, Tiers: true}, "an extent that another process had written was ignored because of a write that never began"},
	{Options{Seed: 96002191, Steps: 300, Faults: true, Tiers: true}, "the mirror compared before the events of an expired request were taken"},
	{Options{Seed: 94001372, Steps: 300, Faults: true, Tiers: true}, "wrong KV of a public prefix stayed in the tree below other salts' tokens, and was written to the host when it was evicted"},
	{Options{Seed: 94001801, Steps: 300, Faults: true, Tiers: true}, "the tiers checker forbade a write that was decided before its parent was lost"},
	{Options{Seed: 94002396, Steps: 300, Faults: true, Tiers: true}, "the same"},
	{Options{Seed: 110000735, Steps: 300, Faults: true, Tiers: true}, "the tiers checker wanted the scheduler to know a record of another process that it can't tell from its own wrong write"},
	{Options{Seed: 110010519, Steps: 300, Faults: true, Tiers: true}, "a write began of an extent that had left the device with its parent, whose pages another public length had put on another path"},
	{Options{Seed: 120009754, Steps: 300}, "the same"},
	{Options{Seed: 120019851, Steps: 300}, "the progress checker counted an older request as the oldest once, though it was preempted and admitted again"},
	{Options{Seed: 120041770, Steps: 300}, "the progress checker counted requests that were served while an older one waited for a read from disk"},
	{Options{Seed: 91600404, Steps: 300, Faults: true, Tiers: true}, "the failed checker took another process's record for that of a failed request"},
	{Options{Seed: 91600700, Steps: 300, Faults: true, Tiers: true}, "the same"},
	{Options{Seed: 91600632, Steps: 300, Faults: true, Tiers: true}, "a request waited for a read that could not begin: the write that it waited for had failed"},
}

// TestSeedsThatFailed: worlds that broke a promise once now keep all of them. A newly found
// failure is added to the list together with its fix.
func TestSeedsThatFailed(t *testing.T) {
	for _, w := range onceFailed {
		w.options.plant = func() bug { return noBug{} } // no embeddings: they came later, and change what is drawn
		if _, err := Run(w.options); err != nil {
			t.Errorf("%v; the cause once was: %s", err, w.cause)
		}
	}
}

// TestFairSeeds: whatever their habits, tenants are served as fair policies promise.
func TestFairSeeds(t *testing.T) {
	n := *seedCount
	if invariants.Enabled {
		n = min(n, 30)
	}
	var mu sync.Mutex
	unfair, preemptions, cached, aborts := 0.0, 0, 0, 0
	eachSeed(t, *firstSeed, n, func(o Options) error {
		o.Fair = true
		r, err := Run(o)
		mu.Lock()
		defer mu.Unlock()
		unfair = max(unfair, r.Unfair)
		preemptions, cached, aborts = preemptions+r.Preemptions, cached+r.CachedTokens, aborts+r.Aborts.Prefilling
		return err
	})
	t.Logf("%d worlds, unfair to %.2f of the bound, %d preemptions, %d tokens cached, %d given up while prefilling", n, unfair, preemptions, cached, aborts)
	if n >= 30 && !t.Failed() && (unfair < 0.5 || preemptions < 10 || cached < 1000 || aborts < 10) {
		t.Error("the worlds are too easy")
	}
}

func (r *Report) add(o *Report) {
	r.Requests += o.Requests
	r.Refused += o.Refused
	r.OutputTokens += o.OutputTokens
	r.RanTokens += o.RanTokens
	r.PromptTokens += o.PromptTokens
	r.CachedTokens += o.CachedTokens
	r.CopiedPages += o.CopiedPages
	r.Drafted += o.Drafted
	r.Confirmed += o.Confirmed
	r.Moves.add(&o.Moves)
	r.Preemptions += o.Preemptions
	r.Displaced += o.Displaced
	r.Embeddings += o.Embeddings
	for i := range r.Endings {
		r.Endings[i] += o.Endings[i]
	}
	r.Aborts.Queued += o.Aborts.Queued
	r.Aborts.Prefilling += o.Aborts.Prefilling
	r.Aborts.Decoding += o.Aborts.Decoding
	r.Aborts.WhileRunning += o.Aborts.WhileRunning
	r.Messages += o.Messages
	r.Recalled += o.Recalled
	r.Events += o.Events
	r.Compared += o.Compared
	r.Leaves += o.Leaves
	r.Longest, r.Unfair = max(r.Longest, o.Longest), max(r.Unfair, o.Unfair)
	r.Time += o.Time
}

// TestTierSeeds: as TestSeeds, with tiers below the device in every world. Half of the
// worlds restart in the middle, if a tier outlives the process.
func TestTierSeeds(t *testing.T) {
	n := *seedCount
	if invariants.Enabled {
		n = min(n, 30)
	}
	var mu sync.Mutex
	var sum Moves
	eachSeed(t, *firstSeed, n, func(o Options) error {
		o.Tiers = true
		r, err := Run(o)
		mu.Lock()
		defer mu.Unlock()
		sum.add(&r.Moves)
		return err
	})
	t.Logf("%d worlds: %+v", n, sum)
	if n >= 30 && !t.Failed() {
		sum.mustBeRich(t)
	}
}

// TestFaultsHaveTiers: half of the worlds with faults have tiers.
func TestFaultsHaveTiers(t *testing.T) {
	const worlds = 1000
	n := 0
	for seed := range uint64(worlds) {
		if w := newSetup(Options{Seed: seed, Faults: true}, noBug{}); w.cfg.Tiers != nil {
			n++
		}
	}
	if n < worlds*45/100 || n > worlds*55/100 {
		t.Errorf("%d of %d worlds with faults have tiers, want about half", n, worlds)
	}
}

func (m *Moves) add(o *Moves) {
	m.Reads += o.Reads
	m.Failed += o.Failed
	m.Late += o.Late
	m.Canceled += o.Canceled
	m.Writes += o.Writes
	m.Promotions += o.Promotions
	m.Fetches += o.Fetches
	m.HitTokens += o.HitTokens
	m.Found += o.Found
	m.Lost += o.Lost
}

// mustBeRich fails the test if reads are rare, or never end in one of the ways that m
// counts.
func (m *Moves) mustBeRich(t *testing.T) {
	t.Helper()
	for what, n := range map[string]int{
		"failed reads": m.Failed, "late reads": m.Late, "canceled reads": m.Canceled, "promotions": m.Promotions,
		"fetches": m.Fetches, "tokens fetched": m.HitTokens, "extents found": m.Found,
	} {
		if n < 5 {
			t.Errorf("%d %s: the worlds are too easy", n, what)
		}
	}
	if 12*m.Reads < m.Writes {
		t.Errorf("%d reads and %d writes: the worlds are too easy", m.Reads, m.Writes)
	}
}

// mustBeRich fails the test if too little happens in the simulated worlds for a bug to
// show.
func (r *Report) mustBeRich(t *testing.T) {
	t.Helper()
	for what, n := range map[string]int{
		"preemptions": r.Preemptions, "displaced samples": r.Displaced, "cached tokens": r.CachedTokens, "copies": r.CopiedPages, "refusals": r.Refused,
		"stops": r.Endings[scheduler.Stop], "lengths": r.Endings[scheduler.Length],
		"aborts": r.Endings[scheduler.Abort], "failures": r.Endings[scheduler.Failed],
		"aborts of queued requests": r.Aborts.Queued, "aborts while prefilling": r.Aborts.Prefilling,
		"aborts while decoding": r.Aborts.Decoding, "aborts while a plan runs": r.Aborts.WhileRunning,
		"messages": r.Messages, "recalled pages": r.Recalled, "events": r.Events,
		"comparisons with the tree": r.Compared, "leaves": r.Leaves, "drafts": r.Drafted, "right drafts": r.Confirmed, "embeddings": r.Embeddings,
	} {
		if n < 10 {
			t.Errorf("%d %s: the worlds are too easy", n, what)
		}
	}
}

func ExampleRun() {
	report, err := Run(Options{Seed: 1, Steps: 50})
	fmt.Println(err, len(report.Steps) >= 50)
	// Output: <nil> true
}

// TestTwins: a seed determines a world, to the last digest; and the read-only methods, which
// the second run calls at every turn, change nothing.
func TestTwins(t *testing.T) {
	n := *seedCount
	if n <= 60 { // the default number
		n = 20
	}
	eachSeed(t, *firstSeed, n, func(o Options) error {
		_, err := RunTwin(o)
		return err
	})
}
