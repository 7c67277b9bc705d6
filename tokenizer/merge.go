package tokenizer

import (
	"math"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// pair is two adjacent tokens, the left one in the high half.
type pair uint64

func pairOf(left, right kv.Token) pair { return pair(left)<<32 | pair(right) }

// merge is the result of merging a pair, and its rank: the lowest rank merges first.
type merge struct {
	rank uint32
	id   kv.Token
}

// noMerge is the rank of a pair that does not merge.
const noMerge = math.MaxUint32

// maxShortPiece is the length in bytes up to which mergeShort merges a piece. mergeShort takes
// quadratic time, but for short pieces its arrays fit the stack, and it is faster than mergeLong
// with its heap.
const maxShortPiece = 64

// merge appends the tokens of one piece: starting with its symbols, it merges the pair of
// lowest rank, the leftmost among equals, until no pair merges.
func (t *Tokenizer) merge(dst []kv.Token, piece string, s *scratch) []kv.Token {
	if len(piece) <= maxShortPiece {
		return t.mergeShort(dst, piece)
	}
	return t.mergeLong(dst, piece, s)
}

func (t *Tokenizer) mergeShort(dst []kv.Token, piece string) []kv.Token {
	var idArray [maxShortPiece]kv.Token
	var mergeArray [maxShortPiece]merge // [i]: the merge of ids[i] and ids[i+1]
	ids := t.spell(idArray[:0], piece)
	n := len(ids)
	if n == 0 {
		return dst
	}
	merges := mergeArray[:n]
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

// node is a token of a long piece, in a list that is doubly linked by index.
type node struct {
	id         kv.Token
	merge      merge // with the next node; rank noMerge also if this node was merged away
	prev, next int32 // -1 at the ends
}

// scratch has the buffers in which long pieces are merged, reused from one piece to the next.
// Their size is that of the longest piece so far; see keptPiece.
type scratch struct {
	ids   []kv.Token
	nodes []node
	queue mergeQueue
	cache pieceCache
	bounds
}

// mergeLong does the same as mergeShort in O(n log n) time.
func (t *Tokenizer) mergeLong(dst []kv.Token, piece string, s *scratch) []kv.Token {
	if s.exceeds(dst, t.fewest(len(piece)), t.longest) || s.unfit(len(piece)) {
		return dst
	}
	s.ids = t.spell(slices.Grow(s.ids[:0], len(piece)), piece)
	if len(s.ids) == 0 || s.exceeds(dst, len(s.ids), t.longest) {
		return dst
	}
	s.nodes = slices.Grow(s.nodes[:0], len(s.ids))
	s.queue = slices.Grow(s.queue[:0], len(s.ids))
	for i, id := range s.ids {
		s.nodes = append(s.nodes, node{id: id, prev: int32(i) - 1, next: int32(i) + 1})
	}
	s.nodes[len(s.nodes)-1].next = -1
	for i := range s.nodes {
		t.enqueue(s, int32(i))
	}
	for len(s.queue) > 0 {
		q := s.queue.pop()
		n := &s.nodes[q.at]
		if n.merge.rank != q.rank {
			continue // outdated: one of the two has merged with another node
		}
		n.id = n.merge.id
		gone := &s.nodes[n.next]
		gone.merge.rank = noMerge
		n.next = gone.next
		if n.next >= 0 {
			s.nodes[n.next].prev = q.at
		}
		t.enqueue(s, q.at)
		if n.prev >= 0 {
			t.enqueue(s, n.prev)
		}
	}
	for i := int32(0); i >= 0; i = s.nodes[i].next {
		dst = append(dst, s.nodes[i].id)
	}
	return dst
}

// enqueue looks up the merge of node i with the next one and queues it.
func (t *Tokenizer) enqueue(s *scratch, i int32) {
	n := &s.nodes[i]
	n.merge.rank = noMerge
	if n.next >= 0 {
		n.merge = t.lookup(n.id, s.nodes[n.next].id)
	}
	if n.merge.rank != noMerge {
		s.queue.push(queued{n.merge.rank, i})
	}
}
