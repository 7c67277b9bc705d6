package schedtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/scheduler"
)

// Report is what happened in a world.
type Report struct {
	Options Options
	World   string // its configuration, on one line

	// Digest is XXH3-64 over every plan (rows, binds, copies, pages), output,
	// ending and cache event, in order: equal worlds give equal digests, on every
	// platform.
	Digest uint64
	// Steps are the digests after each plan; see [RunTwin].
	Steps []uint64

	Requests     int // accepted
	Refused      int
	OutputTokens int // tokens that callers got
	RanTokens    int // run by the backend
	PromptTokens int // tokens of admitted prompts
	CachedTokens int // of those, from the cache
	CopiedPages  int // of boundary pages
	MovedPages   int // between tiers
	FailedMoves  int
	Moves        Moves
	Preemptions  int
	Displaced    int    // samples
	Endings      [8]int // by scheduler.Reason
	Aborts       Aborts
	Letters      int           // to and from the pool
	Events       int           // of the cache
	Leaves       int           // paths of the tree that were compared with what the pages hold
	Compared     int           // comparisons of the events' mirror with the tree
	Longest      float64       // most requests that overtook one, as a share of what the progress checker allows
	Unfair       float64       // most by which the service of two tenants differed, as a share of what the shares checker allows
	Time         time.Duration // virtual
}

// HitRate is the share of prompt tokens that came from the cache.
func (r Report) HitRate() float64 {
	if r.PromptTokens == 0 {
		return 0
	}
	return float64(r.CachedTokens) / float64(r.PromptTokens)
}

// String is a few lines for a terminal.
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
		r.PromptTokens, r.CachedTokens, 100*r.HitRate(), r.OutputTokens, r.CopiedPages)
	if r.MovedPages > 0 {
		m := &r.Moves
		fmt.Fprintf(&b, "moves:    %d pages, %d writes (%d promotions), %d reads (%d failed, %d late, %d canceled), %d tokens fetched, %d extents found\n",
			r.MovedPages, m.Writes, m.Promotions, m.Reads, m.Failed, m.Late, m.Canceled, m.HitTokens, m.Found)
	}
	fmt.Fprintf(&b, "traffic:  %d letters to and from the pool, %d cache events, %d comparisons with the tree\n", r.Letters, r.Events, r.Compared)
	fmt.Fprintf(&b, "digest:   %016x\n", r.Digest)
	return b.String()
}

// Moves counts what became of moves between tiers.
type Moves struct {
	Reads      int // that ended well
	Failed     int // reads that failed, but for the next two
	Late       int // reads that passed their deadline
	Canceled   int // reads that were needed no more
	Writes     int // that ended well
	Promotions int // of them, to the host of what lies further below
	Fetches    int // waits of requests for reads
	HitTokens  int // of prompts, that were fetched
	Found      int // extents that a restart found
	Lost       int // extents that the device gave up and that could not be written
}

// Aborts counts where requests were when their callers gave them up.
type Aborts struct {
	Queued, Prefilling, Decoding int
	WhileRunning                 int // of these, with a row in a plan that ran
}
