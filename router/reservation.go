package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ownPeer marks reservations of this router itself.
const ownPeer = -1

// reservation is an entry of the slab.
type reservation struct {
	id   uint64 // given by the router that made it; 0: the entry is free
	peer int32  // that router: an index of replicas.peers, or ownPeer
	slot int32  // the worker
	end  int32  // node of the tree in which its prompt ends

	promptTokens int
	computed     int // of uncached, so far
	uncached     int // prompt tokens to compute, at the beginning
	outputTokens int
	privatePart  int // blocks of the prompt that no hash can share
	private      int // privatePart and the blocks of outputs
	prefilling   bool
	untold       bool // see Request.Untold

	promise
	debt

	predicted time.Duration // time left for its prompt, by profile
	touched   time.Duration // of the last progress
	synced    time.Duration // when replicas last got an event

	affinity

	links [lists]link
}

// promise is the prediction of one active request about its worker's cache: the blocks
// of its prompt that the index does not have there will be there once computed. So a
// request with the same prefix that arrives before that counts them as cached.
//
// The prediction ends with the request's first token (events report the blocks by
// then), with the request's end, or from a removed block on. The cached part, blocks
// [0, known), is not predicted by any request: if it is removed, the index reports
// that, and the predicted blocks after it no longer extend an overlap.
//
// Example: a prompt of 10 blocks of which the worker has 4 predicts blocks [4, 10).
type promise struct {
	made        bool
	known, upTo int32 // predicted are blocks [known, upTo) of the prompt
	hashes      int32 // hashed blocks of the prompt
}

// debt is the next sign of progress that the worker owes for one reservation.
type debt struct {
	owed     owed
	sized    bool          // the length of the reply is known
	reserved time.Duration // time of the reservation
	term     time.Duration // within which the first token, or all, is due
}

// owed is the next sign of progress of a reply.
type owed uint8

const (
	nothing  owed = iota
	asToken       // its first token
	asNext        // another token
	asAnswer      // all of it
)

// affinity is the effect of a reservation on its session, so that a rollback can undo
// it.
type affinity struct {
	session     uint64  // the session that it claimed; 0: none
	previous    kv.Rank // the session's worker before
	hadPrevious bool    // whether there was one
	unclaimed   bool    // the claim was undone
	stamp       uint64  // of its last claim
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

func emptyList(by int) list { return list{by, none, none} }

// push appends an entry.
func (l *list) push(slab []reservation, at int32) {
	slab[at].links[l.by] = link{l.tail, none}
	if l.tail == none {
		l.head = at
	} else {
		slab[l.tail].links[l.by].next = at
	}
	l.tail = at
}

// remove unlinks an entry, which must be in the list.
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
