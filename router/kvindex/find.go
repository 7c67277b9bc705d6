package kvindex

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/internal/wide"
	"github.com/coppice-llm/coppice/kv"
)

// Overlap is the number of leading blocks of a query that a holder has.
type Overlap struct {
	Holder kv.Rank
	Blocks uint32 // from position 0 on, at least 1
}

// Find appends to dst the overlap of each holder that has the first block of hashes, the chained
// hashes of a prompt's blocks. A holder whose overlap ends in an earlier node comes earlier. It
// writes nothing else and allocates only to grow dst. It costs one step per run on the path, the
// comparison of the hashes, and one step per holder.
//
// A holder is reported exactly once: where its blocks end or where the prompt leaves the tree.
// Holders of a whole run that also hold the next one cost no step of their own: the words of the
// two sets are compared, 64 holders at a time.
//
// Example: in the tree of the package comment, Find of b0 to b3 and c4 compares two runs. At the
// end of the first run worker 1 is reported with 4 blocks. In the second run worker 3, with a
// cut after 2 blocks, and worker 2 both match 1 block more: 5.
func (x *Index) Find(hashes []kv.BlockHash, dst []Overlap) []Overlap {
	var before *node // the last node matched to its end: holders in its set full are not reported yet
	// depth is the number of blocks of the query matched so far.
	var depth uint32
	for id := root; ; {
		var n *node
		// The next run is the child that begins with the next block.
		if len(hashes) > 0 {
			if child := x.childOf(id, hashes[0]); child != root {
				id = child
				n = x.node(id)
			}
		}
		if n == nil {
			if before != nil {
				dst = x.appendFull(before, nil, depth, dst)
			}
			return dst
		}
		// Report the holders of the whole previous run that do not hold this run's first block.
		if before != nil {
			dst = x.appendFull(before, n, depth, dst)
		}
		same := wide.CommonPrefix(n.hashes, hashes)
		// Holders with a cut end in this run, at the cut or where the query leaves the run.
		for _, c := range n.cuts {
			dst = append(dst, Overlap{x.holders.all[c.slot].holder, depth + min(c.blocks, uint32(same))})
		}
		depth += uint32(same)
		// The query leaves the tree inside this run, or ends: holders of the whole run match depth blocks.
		if same < len(n.hashes) || same == len(hashes) {
			return x.appendFull(n, nil, depth, dst)
		}
		before, hashes = n, hashes[same:]
	}
}

// appendFull appends to dst, with an overlap of depth blocks, the holders of the whole run of n
// that do not hold the first block of node next. next may be nil.
func (x *Index) appendFull(n, next *node, depth uint32, dst []Overlap) []Overlap {
	for i := range n.words() {
		word := n.word(i).full
		if next != nil {
			word &^= next.word(i).held
		}
		for ; word != 0; word &= word - 1 {
			slot := 64*i + bits.TrailingZeros64(word)
			dst = append(dst, Overlap{x.holders.all[slot].holder, depth})
		}
	}
	return dst
}

// MaxOverlaps returns dst with other merged into it: one overlap for each holder, the larger
// one, ascending by holder. The router uses it to combine predictions with known blocks.
// Example: {w1 3, w2 5} and {w1 4, w3 1} give {w1 4, w2 5, w3 1}.
func MaxOverlaps(dst, other []Overlap) []Overlap {
	dst = append(dst, other...)
	slices.SortFunc(dst, func(a, b Overlap) int { // the larger overlap of a holder first
		return cmp.Or(a.Holder.Compare(b.Holder), cmp.Compare(b.Blocks, a.Blocks))
	})
	return slices.CompactFunc(dst, func(a, b Overlap) bool { return a.Holder == b.Holder })
}
