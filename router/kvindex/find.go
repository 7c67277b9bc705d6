package kvindex

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Overlap is the number of leading blocks of a query that a holder has.
type Overlap struct {
	Holder kv.Rank
	Blocks uint32 // from position 0 on, at least 1
}

// Find appends the overlap of each holder that has the first block of a sequence; holders whose
// overlap ends in an earlier node come first. It writes nothing else and allocates only to grow
// dst. It costs one step per run on the path, the comparison of the local hashes, and one step
// per holder.
//
// A holder is reported exactly once: at its cut, where its last run ends, or where the query
// leaves the tree. Holders that reach the end of a run and have the next one are passed on without
// a step of their own: the words of the two sets are compared, 64 holders at a time.
//
// Example: in the tree of the package comment, Find of b0 to b3 and c4 compares two runs. At the
// end of the first one worker 1 drops out with 4 blocks; in the second one worker 3, with a cut
// after 2 blocks, and worker 2 both match 1 block more: 5.
func (x *Index) Find(locals []kv.LocalHash, dst []Overlap) []Overlap {
	var before *node // its full holders are those still in the race
	// depth is the number of blocks of the query matched so far.
	var depth uint32
	for id := root; ; {
		var n *node
		// The next run is the child that begins with the next local hash.
		if len(locals) > 0 {
			if e := x.edges.get(uint64(locals[0]), uint32(id)); e != nil {
				id = e.to
				n = x.node(id)
			}
		}
		if n == nil {
			if before != nil {
				dst = x.appendFull(before, nil, depth, dst)
			}
			return dst
		}
		// The holders of the whole previous run that do not hold this one end at its end.
		if before != nil {
			dst = x.appendFull(before, n, depth, dst)
		}
		same := commonPrefix(n.locals, locals)
		// Holders with a cut end in this run, at the cut or where the query leaves the run.
		for _, c := range n.cuts {
			dst = append(dst, Overlap{x.holders.all[c.slot].holder, depth + min(c.blocks, uint32(same))})
		}
		depth += uint32(same)
		// The query leaves the tree inside this run, or ends: its full holders match this far.
		if same < len(n.locals) || same == len(locals) {
			return x.appendFull(n, nil, depth, dst)
		}
		before, locals = n, locals[same:]
	}
}

// appendFull appends the full holders of n that do not hold next.
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

// commonPrefix returns the length of the common prefix of a and b. It compares eight at a time:
// most runs are equal up to the end of the shorter one.
func commonPrefix(a, b []kv.LocalHash) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	i := 0
	for ; i+8 <= n; i += 8 {
		p, q := (*[8]kv.LocalHash)(a[i:]), (*[8]kv.LocalHash)(b[i:])
		if (p[0]^q[0])|(p[1]^q[1])|(p[2]^q[2])|(p[3]^q[3])|(p[4]^q[4])|(p[5]^q[5])|(p[6]^q[6])|(p[7]^q[7]) != 0 {
			break
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// MaxOverlaps merges other into dst: the larger overlap of each holder, ascending by holder. The
// router uses it to combine predictions with known blocks.
// Example: {w1 3, w2 5} and {w1 4, w3 1} give {w1 4, w2 5, w3 1}.
func MaxOverlaps(dst, other []Overlap) []Overlap {
	dst = append(dst, other...)
	sortOverlaps(dst)
	kept := 0
	for i := range dst {
		if i == 0 || dst[i].Holder != dst[kept-1].Holder {
			dst[kept] = dst[i]
			kept++
		}
	}
	return dst[:kept]
}

// sortOverlaps sorts by holder, the larger overlap of a holder first.
func sortOverlaps(o []Overlap) {
	slices.SortFunc(o, func(a, b Overlap) int {
		return cmp.Or(a.Holder.Compare(b.Holder), cmp.Compare(b.Blocks, a.Blocks))
	})
}
