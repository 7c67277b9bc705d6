package router

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ledger holds the reservations and keeps the loads of their workers.
//
// Reservations live in a slab with a free list; lists link them by index (see link). So
// a reservation costs no allocation in steady state, and its handle is an index and an
// id.
type ledger struct {
	cfg         *Config
	fleet       *fleet
	slab        []reservation
	freeEntries []int32
	ages        list // all reservations, the longest without progress first
	active      int  // reservations, with those of replicas
	tree        tree // distinct blocks by worker
	// nextLate is the earliest time at which a worker can become late without news of it.
	// Before it, no worker has to be checked.
	nextLate time.Duration
}

func newLedger(cfg *Config, f *fleet) ledger {
	return ledger{cfg: cfg, fleet: f, ages: emptyList(byAge), tree: newTree(mix(cfg.Seed, 1), cfg.MaxWorkers), nextLate: never}
}

// reserve adds a reservation and its load to the worker in slot, and returns the reservation's
// index in the slab. peer is the router that made the reservation (an index of replicas.peers,
// or ownPeer), id the number that this router gave it, and a its figures. The caller has checked
// that fewer than MaxActive reservations exist.
func (l *ledger) reserve(slot, peer int32, id uint64, a *reservationSpec) int32 {
	now := l.fleet.now
	at := occupy(&l.slab, &l.freeEntries)
	e, w := &l.slab[at], &l.fleet.workers[slot]
	*e = reservation{
		id: id, peer: peer, slot: slot, promptTokens: a.promptTokens, uncached: a.uncached, privatePart: a.privatePart,
		private: a.privatePart, untold: a.untold, prefilling: true, predicted: a.predicted, touched: now, synced: now,
	}
	// Blocks that another active request of the worker holds are not added again.
	added := 0
	e.end, added = l.tree.insert(slot, a.hashes)
	w.hashed += added
	w.private += e.private
	if w.requests == 0 {
		// An idle worker begins a step now; its last news may be hours old.
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
	l.updateNextLate(w)
	return at
}

// progress updates reservation at with totals: computed prompt tokens beyond the cached ones,
// and output tokens. A total below the known one changes nothing, so events may repeat or arrive
// late. The first output token ends the prefill.
//
// Output tokens take new blocks after those of the prompt. Example with blocks of 16: a prompt
// of 20 tokens has 2 blocks, and with 13 output tokens (33 tokens in all) the request has 3.
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
		w.noteToken(l.slab, at)
	}
	l.updateNextLate(w)
}

// compute raises the number of computed prompt tokens of reservation at, which is still
// prefilling. A lower number changes nothing. The prediction of the remaining time shrinks in
// proportion to the remaining tokens. If the reservation is the first in its worker's
// prefillingQueue, worker.anchor becomes now, because the new prediction counts from now. If the
// request has output tokens, its prefill ends, whatever number was reported as computed.
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

// endPrefill takes reservation at out of the prefilling ones: its remaining prompt tokens, its
// remaining predicted time and its predicted blocks no longer count. It does nothing if the
// prefill has ended already.
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

// end removes reservation at from all lists, sums and the tree, and frees its entry. It returns a
// copy of the reservation.
func (l *ledger) end(at int32) reservation {
	l.endPrefill(at)
	e := &l.slab[at]
	w := &l.fleet.workers[e.slot]
	w.endDebt(l.slab, at)
	w.hashed -= l.tree.remove(e.slot, e.end)
	w.private -= e.private
	w.requests--
	w.contextTokens -= e.promptTokens + e.outputTokens
	l.active--
	l.ages.remove(l.slab, at)
	w.active.remove(l.slab, at)
	l.updateNextLate(w)
	was := *e
	*e = reservation{}
	l.freeEntries = append(l.freeEntries, at)
	return was
}

// own returns the entry of a reservation that this router made, or nil if the reservation has
// ended. Then the entry may belong to another reservation, which has another id.
func (l *ledger) own(res Reservation) *reservation {
	if res.id == 0 || res.at < 0 || int(res.at) >= len(l.slab) {
		return nil
	}
	if e := &l.slab[res.at]; e.id == res.id && e.peer == ownPeer {
		return e
	}
	return nil
}

// removed withdraws the predictions for blocks that the worker in slot has removed from its
// cache: of each prompt that predicts such a block, the predictions for this block and for all
// blocks after it. Only prefilling reservations have predictions.
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

// cleared ends all predictions for the worker in slot.
func (l *ledger) cleared(slot int32) {
	for at := l.fleet.workers[slot].prefillingQueue.head; at != none; at = l.slab[at].links[byPrefill].next {
		l.tree.endPromise(&l.slab[at])
	}
}
