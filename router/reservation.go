package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ownPeer marks reservations of this router itself.
const ownPeer = -1

// reservation is an entry of ledger.slab.
type reservation struct {
	id   uint64 // given by the router that made it; 0: the entry is free
	peer int32  // the router that made it: an index of replicas.peers, or ownPeer
	slot int32  // the worker, as an index of fleet.workers
	end  int32  // node of the tree in which its prompt ends

	promptTokens int
	computed     int // tokens of uncached that have been computed
	uncached     int // prompt tokens to compute when the reservation was made
	outputTokens int
	privatePart  int // blocks of the prompt that no hash can share
	private      int // privatePart + the blocks of output tokens
	prefilling   bool
	untold       bool // see Request.Untold

	promise
	debt

	predicted time.Duration // time left for its prompt, by profile
	touched   time.Duration // time of the last progress
	synced    time.Duration // when replicas last got an event

	affinity

	links [lists]link
}

// promise is a prediction of one active request about its worker's cache. Blocks of its prompt
// that the worker does not have yet will be cached there once the worker has computed these
// blocks. A request with the same prefix that arrives earlier counts them as cached.
//
// The prediction ends with the request's first token (events report the blocks by then) or with
// the request's end. If the worker removes a predicted block, the prediction ends for that block
// and all after it. The cached blocks [0, known) are not predicted by this request: if the
// worker removes one, the index reports that, and the predicted blocks after it no longer extend
// an overlap.
//
// Example: a prompt has 10 blocks, of which the worker has 4; blocks [4, 10) are predicted.
type promise struct {
	made        bool
	known, upTo int32 // the predicted blocks of the prompt are [known, upTo)
	hashes      int32 // number of blocks of the prompt that have a hash
}

// debt is the next sign of progress that the worker owes for one reservation.
type debt struct {
	due      progress
	sized    bool          // the request gave ExpectedOutput, so the length of the reply is known
	reserved time.Duration // time of the reservation
	term     time.Duration // time within which the first token, or the whole answer, is due
}

// progress is the next sign of progress that a worker owes for a reply.
type progress uint8

const (
	nothing  progress = iota
	asToken           // its first token
	asNext            // another token
	asAnswer          // all of it
)

// affinity holds the effect of a reservation on its session, so that a rollback can undo it.
type affinity struct {
	session     uint64  // the session that it claimed; 0: none
	previous    kv.Rank // the session's worker before this claim
	hadPrevious bool    // whether the session had a worker before this claim
	unclaimed   bool    // the claim was undone
	stamp       uint64  // of this reservation's claim, or of the claim that undid it
}

// reservationSpec has the figures from which a reservation is made.
type reservationSpec struct {
	hashes       []kv.BlockHash
	promptTokens int
	uncached     int
	privatePart  int
	predicted    time.Duration
	untold       bool
	known        int // blocks of the prompt that the index has at the worker
}

// The lists that a reservation is in. Each has its own links in the entry, so that removal
// from any of them is O(1).
const (
	byAge     = iota // all, the longest without progress first
	byWorker         // of one worker
	byPrefill        // of one worker, before their first token, oldest first
	byDebt           // of one worker, owed a first token or a whole answer; see debts
	lists
)

// none ends a list.
const none = -1

// link has the neighbours of an entry in one list, as indices of the slab, or none.
type link struct{ prev, next int32 }

// list is a doubly linked list through the slab of reservations.
type list struct {
	by         int
	head, tail int32
}

// emptyList returns a list without entries. by is byAge, byWorker, byPrefill or byDebt.
func emptyList(by int) list { return list{by, none, none} }

// push appends entry at of the slab to the list.
func (l *list) push(slab []reservation, at int32) {
	slab[at].links[l.by] = link{l.tail, none}
	if l.tail == none {
		l.head = at
	} else {
		slab[l.tail].links[l.by].next = at
	}
	l.tail = at
}

// remove unlinks entry at of the slab, which must be in the list.
func (l *list) remove(slab []reservation, at int32) {
	k := slab[at].links[l.by]
	if k.prev == none {
		l.head = k.next
	} else {
		slab[k.prev].links[l.by].next = k.next
	}
	if k.next == none {
		l.tail = k.prev
	} else {
		slab[k.next].links[l.by].prev = k.prev
	}
}

// promise starts the prediction of reservation e: its worker will soon hold the blocks
// hashes[known:] of its prompt. hashes are all block hashes of the prompt, known is the number
// that the worker has cached. A block that several reservations of one worker predict has a
// count of them. Nothing is predicted if known is len(hashes) or more.
func (t *tree) promise(e *reservation, hashes []kv.BlockHash, known int) {
	if known >= len(hashes) {
		return
	}
	e.promise = promise{true, int32(known), int32(len(hashes)), int32(len(hashes))}
	for _, h := range hashes[known:] {
		t.promises.add(key{uint64(h), uint32(e.slot)}, 1)
	}
}

// endPromise ends the prediction of reservation e, if it has one. The blocks of its prompt stay
// in the tree.
func (t *tree) endPromise(e *reservation) {
	if e.made {
		t.shorten(e, int(e.known))
		e.made = false
	}
}

// shorten ends the prediction of reservation e for the blocks of its prompt with index to or
// above.
func (t *tree) shorten(e *reservation, to int) {
	for i, h := range t.promised(e) {
		if i >= to {
			t.promises.add(key{uint64(h), uint32(e.slot)}, -1)
		}
	}
	e.upTo = min(e.upTo, int32(to))
}

// promised ranges over the predicted blocks of reservation e: the block's index in the prompt,
// and its hash. It follows the tree from the node in which the prompt ends to the root, so the
// runs come last first, and the blocks of one run in ascending order. The hashes stand in the
// tree, so a reservation needs no copy of them.
func (t *tree) promised(e *reservation) func(yield func(int, kv.BlockHash) bool) {
	return func(yield func(int, kv.BlockHash) bool) {
		for at, end := e.end, int(e.hashes); end > int(e.known); at = t.nodes[at].parent {
			run := t.nodes[at].run
			from := end - len(run)
			for i := max(from, int(e.known)); i < min(end, int(e.upTo)); i++ {
				if !yield(i, run[i-from]) {
					return
				}
			}
			end = from
		}
	}
}

// withdraw ends the prediction of reservation e for block removed and for all blocks after it,
// which can't be used without it. Nothing happens if e does not predict that block.
func (t *tree) withdraw(e *reservation, removed kv.BlockHash) {
	for i, h := range t.promised(e) {
		if h == removed {
			t.shorten(e, i)
			return
		}
	}
}
