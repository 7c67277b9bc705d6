package schedtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/scheduler"
)

// Report summarises a world.
type Report struct {
	Options Options
	World   string // the configuration, on one line

	// Digest is XXH3-64 over every plan (rows, binds, copies, pages), output, ending and cache
	// event, in order: equal worlds give equal digests, on every platform.
	Digest uint64
	// Steps has the digest after each plan; see [RunTwin].
	Steps []uint64

	Requests     int // accepted requests
	Refused      int
	OutputTokens int // delivered to callers
	RanTokens    int // computed by the backend
	PromptTokens int // tokens of admitted prompts
	CachedTokens int // prompt tokens found in the cache
	CopiedPages  int // copies of boundary pages
	Drafted      int // guesses that rows verified
	Confirmed    int // guesses that were right
	Embeddings   int // delivered to callers
	MovedPages   int // pages moved between tiers
	Moves        Moves
	Parks        int // that have ended
	Preemptions  int
	Displaced    int    // displaced samples
	Endings      [8]int // by scheduler.Reason
	Aborts       Aborts
	Messages     int           // messages to and from the pool
	Recalled     int           // pages that the pool recalled for another scheduler
	Events       int           // cache events
	Leaves       int           // paths of the tree whose pages were checked at the end
	Compared     int           // comparisons of the mirror with the tree
	Longest      float64       // most overtakers of one request, as a fraction of the progress checker's bound
	Unfair       float64       // largest difference in service between two tenants, as a fraction of the shares checker's bound
	Time         time.Duration // virtual
}

// hitRate returns the fraction of prompt tokens found in the cache.
func (r Report) hitRate() float64 {
	if r.PromptTokens == 0 {
		return 0
	}
	return float64(r.CachedTokens) / float64(r.PromptTokens)
}

// String formats the report in a few lines.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "world:    seed %d: %s\n", r.Options.Seed, r.World)
	fmt.Fprintf(&b, "steps:    %d in %v of virtual time, %d tokens run\n", len(r.Steps), r.Time, r.RanTokens)
	fmt.Fprintf(&b, "requests: %d accepted, %d refused, %d samples displaced, %d preemptions\n", r.Requests, r.Refused, r.Displaced, r.Preemptions)
	b.WriteString("endings: ")
	sep := " "
	for reason, n := range r.Endings {
		if n > 0 {
			fmt.Fprintf(&b, "%s%d %v", sep, n, scheduler.Reason(reason))
			sep = ", "
		}
	}
	fmt.Fprintf(&b, "\ntokens:   %d prompt, %d cached (%.1f %%), %d output, %d boundary pages copied\n",
		r.PromptTokens, r.CachedTokens, 100*r.hitRate(), r.OutputTokens, r.CopiedPages)
	if r.MovedPages > 0 {
		m := &r.Moves
		fmt.Fprintf(&b, "moves:    %d pages, %d writes (%d promotions), %d reads (%d failed, %d late, %d canceled), %d tokens fetched, %d extents found\n",
			r.MovedPages, m.Writes, m.Promotions, m.Reads, m.Failed, m.Late, m.Canceled, m.HitTokens, m.Found)
	}
	if r.Drafted > 0 {
		fmt.Fprintf(&b, "drafts:   %d verified, %d right\n", r.Drafted, r.Confirmed)
	}
	fmt.Fprintf(&b, "traffic:  %d messages to and from the pool, %d cache events, %d comparisons with the tree\n", r.Messages, r.Events, r.Compared)
	fmt.Fprintf(&b, "digest:   %016x\n", r.Digest)
	return b.String()
}

// Moves counts moves between tiers by their results.
type Moves struct {
	Reads      int // successful reads
	Failed     int // failed reads, except late and canceled ones
	Late       int // reads that passed their deadline
	Canceled   int // reads that were no longer needed
	Writes     int // successful writes
	Promotions int // writes to the host of extents from lower tiers
	Fetches    int // times that a request waited for a read
	HitTokens  int // prompt tokens that were fetched
	Found      int // extents found after a restart
	Lost       int // evicted extents that could not be written
}

// Aborts counts aborted requests by phase.
type Aborts struct {
	Queued, Prefilling, Decoding int
	WhileRunning                 int // prefilling or decoding, with a row in flight
}
