package tokenizer

import (
	"math"

	"github.com/coppice-llm/coppice/kv"
)

// pair is two adjacent tokens, the left one in the high half.
type pair uint64

func pairOf(left, right kv.Token) pair { return pair(left)<<32 | pair(right) }

// merge is what a pair becomes, and when: the lowest rank merges first.
type merge struct {
	rank uint32
	id   kv.Token
}

// noMerge is the rank of a pair that does not merge.
const noMerge = math.MaxUint32

func (t *Tokenizer) lookup(left, right kv.Token) merge {
	if m, ok := t.merges[pairOf(left, right)]; ok {
		return m
	}
	return merge{rank: noMerge}
}

// maxShortPiece is the most bytes that mergeShort takes. It is quadratic, but
// for words its arrays fit the stack and beat a heap.
const maxShortPiece = 64

// merge appends the tokens of one piece: beginning with its bytes, the pair of
// lowest rank is merged, the leftmost of equals, until none is left.
func (t *Tokenizer) merge(dst []kv.Token, piece string) []kv.Token {
	if len(piece) <= maxShortPiece {
		return t.mergeShort(dst, piece)
	}
	return t.mergeLong(dst, piece)
}

func (t *Tokenizer) mergeShort(dst []kv.Token, piece string) []kv.Token {
	var idArray [maxShortPiece]kv.Token
	var mergeArray [maxShortPiece]merge // [i]: what ids[i] and ids[i+1] become
	n := len(piece)
	ids, merges := idArray[:n], mergeArray[:n]
	for i := range n {
		ids[i] = t.bytes[piece[i]]
	}
	for i := range n - 1 {
		merges[i] = t.lookup(ids[i], ids[i+1])
	}
	merges[n-1].rank = noMerge
	for {
		best := 0
		for i := range merges {
			if merges[i].rank < merges[best].rank {
				best = i
			}
		}
		if merges[best].rank == noMerge {
			return append(dst, ids...)
		}
		ids[best] = merges[best].id
		copy(ids[best+1:], ids[best+2:])
		copy(merges[best:], merges[best+1:])
		n--
		ids, merges = ids[:n], merges[:n]
		if best > 0 {
			merges[best-1] = t.lookup(ids[best-1], ids[best])
		}
		if best < n-1 {
			merges[best] = t.lookup(ids[best], ids[best+1])
		}
	}
}

// node is a token of a long piece, in a list doubly linked by index.
type node struct {
	id         kv.Token
	merge      merge // with the node after it; rank noMerge also if merged away
	prev, next int   // -1 at the ends
}

// mergeLong does what mergeShort does in O(n log n) time.
func (t *Tokenizer) mergeLong(dst []kv.Token, piece string) []kv.Token {
	nodes := make([]node, len(piece))
	var queue mergeQueue
	for i := range nodes {
		nodes[i] = node{id: t.bytes[piece[i]], prev: i - 1, next: i + 1}
	}
	nodes[len(nodes)-1].next = -1
	update := func(i int) {
		n := &nodes[i]
		n.merge.rank = noMerge
		if n.next >= 0 {
			n.merge = t.lookup(n.id, nodes[n.next].id)
		}
		if n.merge.rank != noMerge {
			queue.push(queued{n.merge.rank, i})
		}
	}
	for i := range nodes {
		update(i)
	}
	for len(queue) > 0 {
		q := queue.pop()
		n := &nodes[q.at]
		if n.merge.rank != q.rank {
			continue // one of the two has merged otherwise since
		}
		n.id = n.merge.id
		gone := &nodes[n.next]
		gone.merge.rank = noMerge
		n.next = gone.next
		if n.next >= 0 {
			nodes[n.next].prev = q.at
		}
		update(q.at)
		if n.prev >= 0 {
			update(n.prev)
		}
	}
	for i := 0; i >= 0; i = nodes[i].next {
		dst = append(dst, nodes[i].id)
	}
	return dst
}
