package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ledger holds the reservations, and keeps the loads of their workers.
type ledger struct {
	cfg         *Config
	fleet       *fleet
	slab        []reservation
	freeEntries []int32
	ages        list
	active      int
	tree        tree
	nextLate    time.Duration // no other worker is late before it, if nothing is heard
	endings     [endings]uint64
	stalls      uint64
}

func newLedger(cfg *Config, f *fleet) ledger {
	return ledger{cfg: cfg, fleet: f, ages: emptyList(byAge), tree: newTree(mix(cfg.Seed, 1), cfg.MaxWorkers), nextLate: never}
}

// reserve adds to the predicted load of a worker; there is room in the slab.
func (l *ledger) reserve(slot, peer int32, id uint64, a *asked) int32 {
	at, now := int32(len(l.slab)), l.fleet.now
	if n := len(l.freeEntries); n > 0 {
		at, l.freeEntries = l.freeEntries[n-1], l.freeEntries[:n-1]
	} else {
		l.slab = append(l.slab, reservation{})
	}
	e, w := &l.slab[at], &l.fleet.workers[slot]
	*e = reservation{
		id: id, peer: peer, slot: slot, promptTokens: a.promptTokens, uncached: a.uncached, privatePart: a.privatePart,
		private: a.privatePart, untold: a.untold, prefilling: true, predicted: a.predicted, touched: now, synced: now,
	}
	added := 0
	e.end, added = l.tree.insert(slot, a.hashes)
	w.hashed += added
	w.private += e.private
	if w.requests == 0 {
		w.heard = now
	}
	w.requests++
	w.reservedSince++
	w.contextTokens += e.promptTokens
	l.active++
	l.ages.push(l.slab, at)
	w.active.push(l.slab, at)
	if w.prefilling == 0 {
		w.anchor = now
	}
	w.prefilling++
	w.prefillTokens += e.uncached
	w.predicted += e.predicted
	w.prefillingQueue.push(l.slab, at)
	if l.cfg.Predict && !a.untold {
		l.tree.promise(e, a.hashes, a.known)
	}
	l.watch(w)
	return at
}

// progress takes what a request has come to; less than before changes nothing.
func (l *ledger) progress(at int32, computed, output int) {
	e := &l.slab[at]
	w := &l.fleet.workers[e.slot]
	e.touched = l.fleet.now
	l.ages.remove(l.slab, at)
	l.ages.push(l.slab, at)
	if output > e.outputTokens {
		w.contextTokens += output - e.outputTokens
		e.outputTokens = output
		blocks := kv.CeilPages(e.promptTokens+output, l.cfg.BlockTokens) - kv.CeilPages(e.promptTokens, l.cfg.BlockTokens)
		w.private += e.privatePart + blocks - e.private
		e.private = e.privatePart + blocks
	}
	if e.prefilling {
		l.compute(at, computed)
	}
	if e.outputTokens > 0 {
		w.flow(l.slab, at)
	}
	l.watch(w)
}

// compute takes how much of its prompt a request has computed.
func (l *ledger) compute(at int32, computed int) {
	e := &l.slab[at]
	w := &l.fleet.workers[e.slot]
	if computed = min(computed, e.uncached); computed > e.computed {
		left := float64(e.uncached-computed) / float64(e.uncached-e.computed)
		rest := time.Duration(left * float64(e.predicted))
		w.predicted -= e.predicted - rest
		w.prefillTokens -= computed - e.computed
		e.predicted, e.computed = rest, computed
		if w.prefillingQueue.head == at {
			w.anchor = l.fleet.now
		}
	}
	if e.outputTokens > 0 {
		l.endPrefill(at)
	}
}

// endPrefill takes a request out of those before their first token.
func (l *ledger) endPrefill(at int32) {
	e := &l.slab[at]
	if !e.prefilling {
		return
	}
	w := &l.fleet.workers[e.slot]
	if w.prefillingQueue.head == at {
		w.anchor = l.fleet.now
	}
	w.prefillingQueue.remove(l.slab, at)
	w.prefilling--
	w.prefillTokens -= e.uncached - e.computed
	w.predicted -= e.predicted
	e.prefilling, e.predicted = false, 0
	l.tree.endPromise(e)
}

// ending says how a reservation ended.
type ending uint8

const (
	released ending = iota
	rolledBack
	expired
	ended // with its worker, or with the router that made it
	endings
)

// end takes a reservation out of all that it is in, and returns what it was.
func (l *ledger) end(at int32, how ending) reservation {
	l.endPrefill(at)
	e := &l.slab[at]
	w := &l.fleet.workers[e.slot]
	w.settle(l.slab, at)
	w.hashed -= l.tree.remove(e.slot, e.end)
	w.private -= e.private
	w.requests--
	w.contextTokens -= e.promptTokens + e.outputTokens
	l.active--
	l.ages.remove(l.slab, at)
	w.active.remove(l.slab, at)
	l.watch(w)
	l.endings[how]++
	was := *e
	*e = reservation{}
	l.freeEntries = append(l.freeEntries, at)
	return was
}

// own is the slab's entry of one of this router's reservations, or nil if it has
// ended.
func (l *ledger) own(res Reservation) *reservation {
	if res.id == 0 || res.at < 0 || int(res.at) >= len(l.slab) {
		return nil
	}
	if e := &l.slab[res.at]; e.id == res.id && e.peer == ownPeer {
		return e
	}
	return nil
}

// removed withdraws what is promised of blocks that are gone from a worker's cache.
func (l *ledger) removed(slot int32, hashes []kv.BlockHash) {
	for _, h := range hashes {
		if l.tree.promises.get(key{uint64(h), uint32(slot)}) == noEntry {
			continue
		}
		for at := l.fleet.workers[slot].prefillingQueue.head; at != none; at = l.slab[at].links[byPrefill].next {
			if e := &l.slab[at]; e.made {
				l.tree.withdraw(e, h)
			}
		}
	}
}

// cleared ends all that is promised of a worker's cache.
func (l *ledger) cleared(slot int32) {
	for at := l.fleet.workers[slot].prefillingQueue.head; at != none; at = l.slab[at].links[byPrefill].next {
		l.tree.endPromise(&l.slab[at])
	}
}
