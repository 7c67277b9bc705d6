package tokenizer

// queued is a possible merge of the node at index at with the next node.
type queued struct {
	rank uint32
	at   int32
}

// before orders by rank, then from left to right.
func (q queued) before(r queued) bool {
	return q.rank < r.rank || q.rank == r.rank && q.at < r.at
}

// mergeQueue is a binary heap; its first element is before all others. It is implemented here because container/heap boxes
// every element, and internal/heap, which tells where each element moves, takes almost half more time to merge a long piece.
type mergeQueue []queued

func (h *mergeQueue) push(q queued) {
	*h = append(*h, q)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

// pop removes and returns the first element of a non-empty heap.
func (h *mergeQueue) pop() queued {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s = s[:last]
	*h = s
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(s) {
			return top
		}
		if child+1 < len(s) && s[child+1].before(s[child]) {
			child++
		}
		if !s[child].before(s[i]) {
			return top
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
}
