package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ownPeer marks what this router itself reserved.
const ownPeer = -1

// reservation is an entry of the slab.
type reservation struct {
	id   uint64 // of the router that made it; 0 where the entry is free
	peer int32  // that router: an index of replicas.peers, or ownPeer
	slot int32  // the worker
	end  int32  // node of the tree

	promptTokens int
	computed     int // of uncached
	uncached     int // tokens to be computed, at the beginning
	outputTokens int
	privatePart  int // blocks of the prompt that are not shared
	private      int // blocks, with the outputs'
	prefilling   bool
	untold       bool // of the request

	promise
	debt

	predicted time.Duration // what is left of the prompt, by profile
	touched   time.Duration // of the last progress
	synced    time.Duration // when the replicas were last told

	affinity

	links [lists]link
}

// promise is the prediction that one active request makes about its worker's cache: the
// blocks of its prompt that the index does not have there will be there once they are
// computed, so a request with the same prefix that comes before that is counted as having
// them. It ends with the request's first token, as events say by then what is there, with
// the request's end, and from a block on that is removed. What the index has of the prompt
// is promised by nobody: if it is removed, the index says so, and what was promised after it
// does not count any more.
type promise struct {
	made        bool
	known, upTo int32 // the blocks [known, upTo) of the prompt
	hashes      int32 // of the prompt
}

// debt is what a worker owes for one reservation.
type debt struct {
	owed     owed
	told     bool          // how long the reply will be
	reserved time.Duration // when it was
	term     time.Duration // how long the first token may take, or all
}

// owed says what comes next of a reply.
type owed uint8

const (
	nothing  owed = iota
	asToken       // its first token
	asNext        // another one
	asAnswer      // all of it
)

// affinity is what a reservation has done to its session.
type affinity struct {
	session   uint64  // whose worker it set, 0 none
	previous  kv.Rank // the session's before it
	had       bool    // there was one
	unclaimed bool    // it was taken back, and the session with it
	stamp     uint64  // of the last claim
}

// asked is what a reservation is made of.
type asked struct {
	hashes       []kv.BlockHash
	promptTokens int
	uncached     int
	privatePart  int
	predicted    time.Duration
	untold       bool
	known        int // blocks of the prompt that the index has at the worker
}

// The lists that a reservation is in, by links of its own.
const (
	byAge     = iota // all: the one without progress for longest first
	byWorker         // those of a worker
	byPrefill        // those of a worker before their first token, oldest first
	byDebt           // those that a worker owes a first token, or all at once; see debts
	lists
)

// none ends a list.
const none = -1

type link struct{ prev, next int32 }

// list is a doubly linked list through the slab of reservations.
type list struct {
	by         int
	head, tail int32
}

func emptyList(by int) list { return list{by, none, none} }

func (l *list) push(slab []reservation, at int32) {
	slab[at].links[l.by] = link{l.tail, none}
	if l.tail == none {
		l.head = at
	} else {
		slab[l.tail].links[l.by].next = at
	}
	l.tail = at
}

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
