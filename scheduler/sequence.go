package scheduler

import (
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler/internal/accounts"
	"github.com/coppice-llm/coppice/scheduler/internal/predict"
)

// place is where a sequence is. Each is in exactly one place.
//
//	waiting <-> following     waiting <-> fetching
//	waiting  -> running  ->   waiting (preempted without a row in flight)
//	            running  ->   preempted -> waiting
//	any place -> ended
//	fetching -> expected -> ended (see prefetch)
type place uint8

const (
	waiting   place = iota // in a lane of the queue
	following              // in the queue, until its leader has computed or fetched a shared prefix
	fetching               // in the queue, until KV has arrived from a lower tier
	preempted              // lost its slot while a row of it is in flight; queued when the row has ended
	running                // has a slot and pages
	ended
	expected // stands for a turn to come, in no queue: keeps what was fetched for it, see prefetch
)

// sequence is the scheduler's state of one sample.
//
//	tokens: [ prompt                          | output          ]
//	KV:     [ shared pages | own pages                          ]
//	        0              shared   done      computed  len(tokens)
//
// done counts the tokens that completed plans have computed; computed also those of plans
// in flight. So done <= computed, and both are equal when no row is in flight. For
// example, with pages of 16, a prompt of 100 tokens of which 48 were cached starts with
// shared 3 pages and done = computed = 48; a chunk of 52 in flight makes computed 100, and
// its completion done 100.
type sequence struct {
	// The fields that each decode step reads come first, to share cache lines.
	place    place
	rows     rowsOut
	target   int // prefill runs up to here: len(tokens) at the latest admission
	computed int
	done     int
	prompt   int // length of the prompt, which is tokens[:prompt]
	limit    int // maximum of output tokens
	table    pageTable
	// tokens are the prompt, shared with other samples until admission, and the output.
	// Rows in flight alias them, so they are only appended to.
	tokens []kv.Token
	abort  error // if set, the sequence ends when no row of it is in flight
	text   text

	req     *Request // that of group
	group   *group
	sample  int
	arrival uint64 // order of Add: the lower is older
	cache   origin
	wait    queueing
	bill    bill
	fetch   *fetch // nil without Config.Tiers, and before the lower tiers were asked
	expiry  int    // index in Scheduler.expiries plus 1; 0: not in it
}

// rowsOut counts the rows of a sequence, for the plans that run them.
type rowsOut struct {
	inflight int8
	sampling int8      // those of them that sample
	digest   bool      // copy of Request.Digest
	life     uint32    // times that it left the device; rows of earlier lives wrote to pages it lost
	sampled  int       // tokens sampled since the latest admission
	drafts   *drafting // nil: the sequence has no drafts
}

// pageTable is the slot of a running sequence and its pages.
type pageTable struct {
	slot   engine.Slot
	pages  []kv.PageID       // by position; only appended to while plans.read(q)
	sent   int               // length of the backend's page table for the slot after the plans so far
	shared int               // pages[:shared] are the tree's, pinned by pin; the rest is the sequence's own
	pin    radixcache.NodeID // SGLang: lock_ref; Root: nothing is pinned
	since  uint64            // Seq of the plan that bound the slot
}

// own returns the pages that the sequence holds itself, as opposed to the tree's.
func (t *pageTable) own() []kv.PageID { return t.pages[t.shared:] }

// newPages returns the pages that the backend's page table of the slot lacks, and counts
// them as sent. So rows send each page id once instead of the whole table in every step.
func (t *pageTable) newPages() []kv.PageID {
	pages := t.pages[t.sent:]
	t.sent = len(t.pages)
	return pages
}

// origin tells whose KV a sequence reads since its latest admission, and for distrust what of it is
// its own.
type origin struct {
	matched  int    // tokens computed at admission, by other requests or by itself before a preemption
	epoch    uint64 // of the cache at admission, see flushedSince
	borrowed int    // of matched, the tokens after whole pages: copied from another sequence's page
	ownFrom  int    // position of the first token that the sequence ever computed itself; noTokens: none
	swapped  uint64 // Seq of the latest plan when pages of it were exchanged for the tree's
	vouches  bool   // it has sampled a token from all KV that it holds
	text     uint32 // number of its text in prefixes.texts; 0: none since its latest admission
	doubtful bool   // it copied KV of a request that failed, and has not sampled from it yet
}

// noTokens is origin.ownFrom of a sequence that has computed nothing: no position is as
// large.
const noTokens = math.MaxInt

// group is a request with its samples, and with what these have in common.
type group struct {
	req     Request
	samples []*sequence // those that have not ended
	begun   bool        // a sample has had a row
	born    uint64      // Scheduler.work at Add
	tenant  *accounts.Tenant
	class   *predict.Class
	allowed allowed // masks of all samples
}

// matchable returns how many tokens of q may come from the cache. The last token must be
// computed, because sampling needs its logits; for log-probabilities of the prompt and for the mean
// of its states, all must.
func (q *sequence) matchable() int {
	if q.computesAll() {
		return 0
	}
	return len(q.tokens) - 1
}

// key returns the cache key of the first n tokens.
func (q *sequence) key(n int) radixcache.Key {
	return radixcache.Key{Namespace: q.req.Namespace, Tokens: q.tokens[:n], PublicTokens: min(q.req.PublicTokens, q.prompt), Media: q.req.Media}
}

// outputTokens returns the number of tokens sampled so far, those in flight not included.
func (q *sequence) outputTokens() int { return len(q.tokens) - q.prompt }

// ownTokens gives q tokens of its own, with capacity for the whole output, at most
// predict.Farthest tokens: a larger MaxTokens is rarely reached, and would reserve memory for
// nothing.
func (q *sequence) ownTokens() {
	if most := q.prompt + min(q.limit, predict.Farthest); cap(q.tokens) < most {
		q.tokens = append(make([]kv.Token, 0, most), q.tokens...)
	}
}

// prefilling reports whether the next row of q runs known tokens; otherwise q decodes.
func (q *sequence) prefilling() bool { return q.computed < q.target }

// known returns the number of computed tokens whose values are known. It is less than done
// only for an aborted sequence: rows in flight still run, but their samples are not
// appended.
func (q *sequence) known() int { return min(q.done, len(q.tokens)) }
