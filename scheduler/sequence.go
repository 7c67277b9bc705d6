package scheduler

import (
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// sequence is a request in the scheduler's hands.
//
//	tokens: [ prompt                          | output          ]
//	KV:     [ shared pages | own pages                ]
//	        0              shared             computed  len(tokens)
type sequence struct {
	req     Request
	arrival uint64 // order of Add; what "older" means

	// tokens has room for the whole output from the start, so that rows may
	// alias it while it grows.
	tokens []kv.Token
	prompt int // len of the prompt within tokens
	limit  int // most output tokens

	// While admitted; zero while waiting.
	slot     engine.Slot
	admitted bool
	inPlan   bool // a row of the running plan is this sequence's
	target   int  // prefill runs up to here: len(tokens) at admission
	computed int  // KV of tokens[:computed] is valid once the running plan is done
	pages    []kv.PageID
	shared   int               // the tree owns pages[:shared], pinned by pin
	pin      radixcache.NodeID // Root: nothing pinned

	match    radixcache.Match // the latest lookup
	abort    error            // set: end at the next chance
	bypassed int              // later arrivals that were admitted before it

	reached      int // most tokens that were computed at a preemption
	cachedTokens int // at first admission
	preemptions  int
	arrived      time.Duration
	queued       time.Duration
	firstToken   time.Duration
	seenToken    bool
	seenSlot     bool // has been admitted before
}

// key names the first n tokens in the cache.
func (q *sequence) key(n int) radixcache.Key {
	return radixcache.Key{Namespace: q.req.Namespace, Tokens: q.tokens[:n]}
}

func (q *sequence) outputTokens() int { return len(q.tokens) - q.prompt }

// prefilling: its next row is given tokens; else it decodes.
func (q *sequence) prefilling() bool { return q.computed < q.target }

// own are the pages that the sequence, not the tree, holds.
func (q *sequence) own() []kv.PageID { return q.pages[q.shared:] }
