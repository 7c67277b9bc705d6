package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// place says where a sequence is. Each is in exactly one.
type place uint8

const (
	inLine   place = iota // waits in a lane of the queue
	parked                // waits for a prompt in flight, its leader's
	returned              // was preempted while a row of it runs; waits for that
	running               // has a slot and pages
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
	slot     engine.Slot
	place    place
	digest   bool // Request.Digest
	shaped   bool // there is a shape to look at
	pending  int8 // rows in flight
	ahead    int8 // of these, how many sample
	life     uint32
	target   int // prefill runs up to here: len(tokens) at admission
	computed int
	done     int
	prompt   int         // len of the prompt within tokens
	limit    int         // most output tokens
	pages    []kv.PageID // append-only while rows alias it
	// tokens are the prompt, shared with other samples until admission, and the
	// output. Rows alias them, so they are only appended to.
	tokens []kv.Token
	abort  error // set: end when no row is in flight any more

	shared  int               // the tree owns pages[:shared], pinned by pin
	pin     radixcache.NodeID // Root: nothing pinned
	matched int               // computed at the latest admission: other requests' work
	epoch   uint64            // of the cache at the latest admission: see cutOff
	sampled int               // tokens sampled since the latest admission

	req     *Request // shared by the samples, and not changed
	sample  int
	group   *group
	arrival uint64 // order of Add; what "older" means
	born    uint64 // work done at Add, see Scheduler.work
	tenant  *tenant
	class   *class

	queueing
	limits
	shape
	bill
}

// group is a request: its samples.
type group struct {
	req     Request
	samples []*sequence // open ones
	allowed             // of all samples
}

// bill is what an Ending says, and what it takes to say it.
type bill struct {
	reached      int // most tokens that were computed at a preemption
	cachedTokens int // at first admission
	preemptions  int
	arrived      time.Duration
	queued       time.Duration
	firstToken   time.Duration
	seenToken    bool
	seenSlot     bool // has been admitted before
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
	return radixcache.Key{Namespace: q.req.Namespace, Tokens: q.tokens[:n]}
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

// own are the pages that the sequence, not the tree, holds.
func (q *sequence) own() []kv.PageID { return q.pages[q.shared:] }

// senior tells whether q outranks o when room is short: by priority, then age.
func (q *sequence) senior(o *sequence) bool {
	if q.req.Priority != o.req.Priority {
		return q.req.Priority > o.req.Priority
	}
	return q.arrival < o.arrival
}
