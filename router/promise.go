package router

import (
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

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

// promises counts, in the tree of active requests, what these promise.
type promises struct {
	blocks   table   // (hash, slot) -> requests that will compute it, at least 1
	requests []int32 // by slot: requests with a promise
}

// promise counts the blocks of a reservation's prompt from known on.
func (t *tree) promise(e *reservation, hashes []kv.BlockHash, known int) {
	if known >= len(hashes) {
		return
	}
	e.promise = promise{true, int32(known), int32(len(hashes)), int32(len(hashes))}
	t.promises.requests[e.slot]++
	for _, h := range hashes[known:] {
		t.promises.blocks.add(key{uint64(h), uint32(e.slot)}, 1)
	}
}

// endPromise ends a reservation's promise, if there is one. Its prompt is in the tree still.
func (t *tree) endPromise(e *reservation) {
	if e.made {
		t.shorten(e, int(e.known))
		e.made = false
		t.promises.requests[e.slot]--
	}
}

// shorten ends a promise from a block of the prompt on.
func (t *tree) shorten(e *reservation, to int) {
	for i, h := range t.promised(e) {
		if i >= to {
			t.promises.blocks.add(key{uint64(h), uint32(e.slot)}, -1)
		}
	}
	e.upTo = min(e.upTo, int32(to))
}

// promised ranges over the blocks that a reservation promises, with their place in the
// prompt, in no order.
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

// withdraw ends a promise from the given block on, if it is of it.
func (t *tree) withdraw(e *reservation, removed kv.BlockHash) {
	for i, h := range t.promised(e) {
		if h == removed {
			t.shorten(e, i)
			return
		}
	}
}

// foresee adds to the overlaps in the scratch what is promised, from the first block on that
// the index does not have.
func (x *scratch) foresee(p *promises, s *scorer) {
	for slot, n := range p.requests {
		if n == 0 {
			continue
		}
		o := x.shares[x.shareOf[slot]].Overlap
		known := o.Blocks()
		all := known
		for all < len(s.hashes) && p.blocks.get(key{uint64(s.hashes[all]), uint32(slot)}) != noEntry {
			all++
		}
		if all == known {
			continue
		}
		o.Device += all - known
		s.best = max(s.best, all)
		x.shareOf[slot] = int32(len(x.shares))
		x.shares = append(x.shares, share{Overlap: o, promised: all - known, kind: none})
	}
}

// Removed says that blocks are gone from a worker's cache: what was predicted of them there,
// and of what comes after them, does not count any more. It costs a step for each block, and
// for one that was promised a step for each block of the prompts that the worker has yet to
// compute.
func (r *Router) Removed(w kv.Rank, hashes []kv.BlockHash) {
	slot := r.slotOf(w)
	if slot == noEntry || r.tree.promises.requests[slot] == 0 {
		return
	}
	for _, h := range hashes {
		if r.tree.promises.blocks.get(key{uint64(h), uint32(slot)}) == noEntry {
			continue
		}
		for at := r.workers[slot].prefillingQueue.head; at != none; at = r.slab[at].links[byPrefill].next {
			if e := &r.slab[at]; e.made {
				r.tree.withdraw(e, h)
			}
		}
	}
	r.verify()
}

// Cleared says that all is gone from a worker's cache.
func (r *Router) Cleared(w kv.Rank) {
	slot := r.slotOf(w)
	if slot == noEntry {
		return
	}
	for at := r.workers[slot].prefillingQueue.head; at != none; at = r.slab[at].links[byPrefill].next {
		r.tree.endPromise(&r.slab[at])
	}
	r.verify()
}

// checkPromises holds the promises against the reservations.
func (t *tree) checkPromises(r *Router) error {
	p, want := &t.promises, map[key]int32{}
	requests := make([]int32, len(r.workers))
	for at := r.ages.head; at != none; at = r.slab[at].links[byAge].next {
		e := &r.slab[at]
		if !e.made {
			continue
		}
		if !e.prefilling {
			return fmt.Errorf("router: reservation %d has had its first token, and promises blocks", e.id)
		}
		requests[e.slot]++
		for _, h := range t.promised(e) {
			want[key{uint64(h), uint32(e.slot)}]++
		}
	}
	n := 0
	for _, entry := range p.blocks.entries {
		if entry.value == noEntry {
			continue
		}
		n++
		if entry.value != want[entry.key] {
			return fmt.Errorf("router: block %x of slot %d is promised %d times, by %d requests", entry.a, entry.b, entry.value, want[entry.key])
		}
	}
	if n != p.blocks.n || n != len(want) || len(p.requests) != len(r.workers) {
		return fmt.Errorf("router: %d promised blocks, %d counted, %d by requests; %d slots of %d", p.blocks.n, n, len(want), len(p.requests), len(r.workers))
	}
	for slot, n := range requests {
		if p.requests[slot] != n {
			return fmt.Errorf("router: %d requests of slot %d promise blocks, %d counted", n, slot, p.requests[slot])
		}
	}
	return nil
}
