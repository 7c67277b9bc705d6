package router

import "github.com/coppice-llm/coppice/kv"

// promise predicts the blocks of a reservation's prompt from block known on: each is
// counted once per reservation that will compute it at the worker.
func (t *tree) promise(e *reservation, hashes []kv.BlockHash, known int) {
	if known >= len(hashes) {
		return
	}
	e.promise = promise{true, int32(known), int32(len(hashes)), int32(len(hashes))}
	for _, h := range hashes[known:] {
		t.promises.add(key{uint64(h), uint32(e.slot)}, 1)
	}
}

// endPromise ends a reservation's prediction, if it has one. Its prompt stays in the
// tree.
func (t *tree) endPromise(e *reservation) {
	if e.made {
		t.shorten(e, int(e.known))
		e.made = false
	}
}

// shorten ends a prediction from block to of the prompt on.
func (t *tree) shorten(e *reservation, to int) {
	for i, h := range t.promised(e) {
		if i >= to {
			t.promises.add(key{uint64(h), uint32(e.slot)}, -1)
		}
	}
	e.upTo = min(e.upTo, int32(to))
}

// promised ranges over the predicted blocks of a reservation with their index in the
// prompt, from the end of the tree path to its root. The hashes stand in the tree, so a
// reservation needs no copy.
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

// withdraw ends a prediction from the given block on, if it contains that block. The
// blocks after it can't be used without it.
func (t *tree) withdraw(e *reservation, removed kv.BlockHash) {
	for i, h := range t.promised(e) {
		if h == removed {
			t.shorten(e, i)
			return
		}
	}
}
