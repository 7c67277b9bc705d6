package missratio

// walk is one request in the line.
type walk struct {
	end     int    // length of the request in tokens; 0 (unknown) for merged walks
	endHash uint64 // hash of all tokens of the request
}

// line holds the walks, oldest first, each with the number of tokens that no later walk
// touched. For a given walk it returns the number of tokens touched after it, in O(log
// walks), by a Fenwick tree (Fenwick, Software: Practice and Experience 24(3), 1994).
type line struct {
	walks  []walk   // cap fixed
	sums   []int    // Fenwick tree over walks, from index 1
	total  int      // tokens of all walks
	tokens []int    // scratch memory: the tokens of each walk
	moved  []uint32 // scratch memory: the new index of each walk
}

// forgotten is the new index of a walk that compact removed.
const forgotten = ^uint32(0)

func newLine(size int) line {
	return line{
		walks:  make([]walk, 0, size),
		sums:   make([]int, size+1),
		tokens: make([]int, size),
		moved:  make([]uint32, size),
	}
}

// full reports whether compact must run before the next append.
func (l *line) full() bool { return len(l.walks) == cap(l.walks) }

// append adds w as the newest walk, with 0 tokens, and returns its index.
func (l *line) append(w walk) uint32 {
	l.walks = append(l.walks, w)
	return uint32(len(l.walks) - 1)
}

// add adds to the number of tokens that a walk was the last to touch. walk is its index;
// negative numbers subtract.
func (l *line) add(walk uint32, tokens int) {
	l.total += tokens
	for i := int(walk) + 1; i < len(l.sums); i += i & -i {
		l.sums[i] += tokens
	}
}

// after returns the number of tokens last touched by walks newer than walk, an index.
func (l *line) after(walk uint32) int {
	upTo := 0
	for i := int(walk) + 1; i > 0; i &= i - 1 {
		upTo += l.sums[i]
	}
	return l.total - upTo
}

// compact makes room for new walks in three steps. It forgets walks after which limit or
// more tokens were touched, as no capacity holds their tokens. It merges neighbouring
// walks to which no sampled block refers, which changes no result of after that is used.
// If that is not enough, it merges the oldest walks in pairs, so that distances to them are
// off by up to one walk. refers[i] is true if a block refers to walk i. The result has the
// new index of each walk, or forgotten; it is valid until the next call.
func (l *line) compact(limit int, refers []bool) []uint32 {
	n, size := len(l.walks), cap(l.walks)
	tokens, moved := l.tokens[:n], l.moved[:n]
	l.unsum(tokens)
	first, newer := n, 0
	for first > 0 && newer < limit {
		first--
		newer += tokens[first]
	}
	for i := range first {
		moved[i] = forgotten
	}
	kept := 0
	for i := first; i < n; i++ {
		if i > first && !refers[i] && !refers[i-1] {
			tokens[kept-1] += tokens[i]
			moved[i] = uint32(kept - 1)
			continue
		}
		tokens[kept], l.walks[kept], moved[i] = tokens[i], l.walks[i], uint32(kept)
		kept++
	}
	if over := kept - size/2; over > size/4 {
		kept = l.pair(2*over, kept, tokens)
		for i := first; i < n; i++ {
			if m := int(moved[i]); m < 2*over {
				moved[i] = uint32(m / 2)
			} else {
				moved[i] = uint32(m - over)
			}
		}
	}
	l.walks = l.walks[:kept]
	l.resum(tokens[:kept])
	return moved
}

// pair merges the oldest walks two by two. oldest is their number, which is even, n the number
// of all walks, and tokens has the tokens of each walk. It returns the new number of walks.
func (l *line) pair(oldest, n int, tokens []int) int {
	half := oldest / 2
	for i := range half {
		tokens[i] = tokens[2*i] + tokens[2*i+1]
		l.walks[i] = walk{}
	}
	copy(tokens[half:], tokens[oldest:n])
	copy(l.walks[half:], l.walks[oldest:n])
	return n - half
}

// unsum sets tokens to the tokens of each walk, computed from the Fenwick tree: the reverse
// of resum.
func (l *line) unsum(tokens []int) {
	copy(tokens, l.sums[1:])
	for i := len(tokens); i > 0; i-- {
		for j, stop := i-1, i&(i-1); j > stop; j &= j - 1 {
			tokens[i-1] -= l.sums[j]
		}
	}
}

// resum builds the Fenwick tree from the tokens of each walk, in O(walks).
func (l *line) resum(tokens []int) {
	clear(l.sums)
	l.total = 0
	for i, t := range tokens {
		l.total += t
		l.sums[i+1] += t
	}
	for i := 1; i < len(l.sums); i++ {
		if up := i + i&-i; up < len(l.sums) {
			l.sums[up] += l.sums[i]
		}
	}
}

func (l *line) reset() {
	l.walks = l.walks[:0]
	clear(l.sums)
	l.total = 0
}
