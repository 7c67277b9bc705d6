package kvindex

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Overlap is how much of a query a holder has.
type Overlap struct {
	Holder kv.Rank
	Blocks uint32 // consecutive from position 0, at least 1
}

// Find appends the overlap of each holder that has the first block of a sequence,
// those who leave it first first. It writes nothing else and allocates only if
// dst has no room. Cost: one step for each run on the way, the comparison of the
// local hashes, and the holders.
func (x *Index) Find(locals []kv.LocalHash, dst []Overlap) []Overlap {
	var before *node // its full holders are those still under way
	var depth uint32
	for id := root; ; {
		var n *node
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
		if before != nil {
			dst = x.appendFull(before, n, depth, dst)
		}
		same := commonPrefix(n.locals, locals)
		for _, c := range n.cuts {
			dst = append(dst, Overlap{x.holders.all[c.slot].holder, depth + min(c.blocks, uint32(same))})
		}
		depth += uint32(same)
		if same < len(n.locals) || same == len(locals) {
			return x.appendFull(n, nil, depth, dst)
		}
		before, locals = n, locals[same:]
	}
}

// appendFull appends the holders of a whole run that are not in the next node.
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

// commonPrefix is the length of the common prefix of a and b. Eight at a time:
// most runs are equal to the end of the shorter one.
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

// MaxOverlaps merges two results into dst, which holds one of them: the larger
// overlap of each holder, ascending by holder. It is how a prediction is laid
// over what is known.
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

func sortOverlaps(o []Overlap) {
	slices.SortFunc(o, func(a, b Overlap) int {
		return cmp.Or(a.Holder.Compare(b.Holder), cmp.Compare(b.Blocks, a.Blocks))
	})
}
