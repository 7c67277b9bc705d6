package scheduler

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// place says where a sequence is. Each is in exactly one.
type place uint8

const (
	waiting   place = iota // in a lane of the queue
	following              // in the queue, for a prompt in flight: its leader's
	fetching               // in the queue, for KV on its way from a lower tier
	preempted              // lost its slot while a row of it runs, and waits for that
	running                // has a slot and pages
	ended
)

// sequence is one sample of a request in the scheduler's hands.
//
//	tokens: [ prompt                          | output          ]
//	KV:     [ shared pages | own pages                          ]
//	        0              shared   done      computed  len(tokens)
//
// done counts what completed plans have computed, computed what plans in flight
// will have.
type sequence struct {
	// What a decode step looks at comes first.
	slot   engine.Slot
	place  place
	digest bool // Request.Digest
	shaped bool // there is a shape to look at
	rowsOut
	target   int // prefill runs up to here: len(tokens) at admission
	computed int
	done     int
	prompt   int // len of the prompt within tokens
	limit    int // most output tokens
	holding
	// tokens are the prompt, shared with other samples until admission, and the
	// output. Rows alias them, so they are only appended to.
	tokens []kv.Token
	abort  error // set: end when no row is in flight any more

	identity
	admission
	queueing
	limits
	shape
	bill
	fetch *fetch // nil without Config.Tiers, and before it was looked at
}

// rowsOut counts a sequence's rows in plans in flight.
type rowsOut struct {
	inflight int8
	sampling int8   // subset of these that sample
	life     uint32 // how often the sequence has left the device: tells a row of an earlier stay
}

// holding is the pages of a running sequence.
type holding struct {
	pages  []kv.PageID       // append-only while rows alias it
	given  int               // of pages, those that the slot's table has after the plans so far
	shared int               // the tree owns pages[:shared], pinned by pin
	pin    radixcache.NodeID // Root: nothing pinned
}

// identity is what a sequence was added with.
type identity struct {
	req     *Request // shared by the samples, and not changed
	sample  int
	group   *group
	arrival uint64 // order of Add; what "older" means
	born    uint64 // work done at Add, see Scheduler.work
	tenant  *tenant
	class   *class
}

// admission is what a sequence keeps of its latest one.
type admission struct {
	matched int    // computed by then: other requests' work
	epoch   uint64 // of the cache: see flushedSince
	sampled int    // tokens since then
	since   uint64 // Seq of the plan that bound its slot
	origin         // whose KV it stands on
}

// origin says whose KV a sequence stands on.
type origin struct {
	borrowed int    // of admission.matched, past whole pages: copied from another sequence's page
	first    int    // first token that it has computed itself, ever; noTokens: none
	swapped  uint64 // Seq of the last plan when pages of it were exchanged for the tree's
	vouches  bool   // it has sampled from all KV that it holds
	doubtful bool   // it has copied KV of a request that failed, and does not vouch for it yet
}

// noTokens is origin.first of a sequence that has computed nothing.
const noTokens = math.MaxInt

// group is a request: its samples.
type group struct {
	req     Request
	samples []*sequence // open ones
	begun   bool        // one of them has had a row
	allowed             // of all samples
}

// limits says when a sequence expires.
type limits struct {
	expiry int // place among the expiries, plus 1; 0: none
}

// bill is what an Ending says, and what it takes to say it.
type bill struct {
	reached      int // most tokens that were computed at a preemption
	cachedTokens int // at first admission
	ran, ranTo   int // tokens of the prompt that its own rows ran, each once, and up to where
	preemptions  int
	arrived      time.Duration
	queued       time.Duration
	firstToken   time.Duration
	seenToken    bool
	seenSlot     bool // has been admitted before
	begun        bool // has had a row
	timeline     []Mark
}

// matchable is how many tokens of q may come from the cache: one must be computed to
// get logits, and all of them to get those of the prompt.
func (q *sequence) matchable() int {
	if q.wantsPrompt() {
		return 0
	}
	return len(q.tokens) - 1
}

// key names the first n tokens in the cache.
func (q *sequence) key(n int) radixcache.Key {
	return radixcache.Key{Namespace: q.req.Namespace, Tokens: q.tokens[:n], PublicTokens: q.req.PublicTokens, Media: q.req.Media}
}

func (q *sequence) outputTokens() int { return len(q.tokens) - q.prompt }

// ownTokens gives q tokens of its own, with room for the output, or as much of it
// as anybody expects.
func (q *sequence) ownTokens() {
	if most := q.prompt + min(q.limit, farthest); cap(q.tokens) < most {
		q.tokens = append(make([]kv.Token, 0, most), q.tokens...)
	}
}

// prefilling: its next row is given tokens; else it decodes.
func (q *sequence) prefilling() bool { return q.computed < q.target }

// known is how many computed tokens can be named: a sequence that was given up takes no
// more samples, while rows of it still run.
func (q *sequence) known() int { return min(q.done, len(q.tokens)) }

// own are the pages that the sequence, not the tree, holds.
func (q *sequence) own() []kv.PageID { return q.pages[q.shared:] }

// mark adds to the timeline, if the request asked for one.
func (q *sequence) mark(now time.Duration, what Moment, tokens int) {
	if q.req.Timeline {
		q.timeline = append(q.timeline, Mark{now - q.arrived, what, tokens})
	}
}
