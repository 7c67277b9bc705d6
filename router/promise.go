package router

import "github.com/coppice-llm/coppice/kv"

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
