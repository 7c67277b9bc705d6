package router

// The lists that a reservation is in, by links of its own.
const (
	byAge     = iota // all: the one without progress for longest first
	byWorker         // those of a worker
	byPrefill        // those of a worker before their first token, oldest first
	byDebt           // those that a worker owes a first token, or all at once; see worker.firsts
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
