package grammar

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Free describes free text around the texts of rules. Without it, an output is one text of the
// rules. With it, an output is any text, but from some beginnings on it is held to the rules until
// a text of theirs is complete; free text follows again. So an output may end in free text or
// after a text of the rules, but not within one.
//
// A token may not go on past the end of a text of the rules. Free text may have any bytes.
type Free struct {
	// Marks are texts with which texts of the rules begin wherever they stand.
	Marks []string
	// Starts are beginnings that count at the beginning of the output, and directly after a text
	// of the rules that began so; with Lines, at the beginning of each line too.
	Starts []Start
	Lines  bool
	// Most is the largest number of texts of the rules in an output. After them it ends.
	Most int
	// Quiet are two tags: in text between them at the beginning of the output nothing begins, and
	// what follows counts as the beginning of the output. Empty tags: none. Opened says that the
	// output begins after the first tag.
	Quiet  [2]string
	Opened bool
	// Special are the contents of special tokens that free text may have. Those that are part of a
	// mark need not be listed.
	Special []string
}

// Start is a beginning of a text of the rules.
type Start struct {
	// Text is the beginning. An output may have white space in front of it, and after each of the
	// characters {":` and the first line of a fence outside of JSON strings, so Text has none
	// there.
	Text string
	// As is the beginning of the text of the rules that goes on where Text ends.
	As string
}

// spot is a place in free text. The zero value is the beginning of an output.
type spot struct {
	start int32 // node of free.starts; outside if no start is possible
	mark  int32 // state of free.marks, or of free.quiet
	quiet bool
}

const (
	outside = -1 // spot.start in text that is no start
	afresh  = 0  // of the beginning
	again   = 1  // directly after a text that began with a Start: separators may follow
	line    = 2  // of a line

	maxFreeBytes = 1 << 15 // of marks and starts together
)

// free is a compiled Free.
type free struct {
	Free
	marks  *Stops // nil: none
	quiet  *Stops // of the closing tag; nil: none
	starts []startNode
	toMark []int32   // by state of marks: bytes until a mark can be complete
	begun  [][]stack // by mark, then by start: the stacks after it

	all     []uint64 // the tokens with text
	refused map[spot][]kv.Token
	special map[string]bool
}

// startNode is a node of the trie of starts.
type startNode struct {
	next   map[byte]int32
	end    int32 // 1 + index into begun, quietEnd, or 0 if no start ends here
	least  int32 // bytes to the nearest end
	spaces bool  // white space may stand here
}

const quietEnd = -1

// newFree compiles f but for begun, which needs the grammar.
func newFree(f Free) (*free, error) {
	if f.Most < 1 || len(f.Marks)+len(f.Starts) == 0 {
		return nil, fmt.Errorf("%w: free text around %d texts with %d beginnings, want at least one of each", ErrInvalid, f.Most, len(f.Marks)+len(f.Starts))
	}
	size := 0
	for _, m := range f.Marks {
		size += len(m)
	}
	for _, s := range f.Starts {
		size += len(s.Text)
	}
	if size > maxFreeBytes {
		return nil, fmt.Errorf("%w: beginnings of %d bytes, at most %d", ErrTooLarge, size, maxFreeBytes)
	}
	c := &free{Free: f, special: map[string]bool{}, refused: map[spot][]kv.Token{}}
	for _, s := range f.Special {
		c.special[s] = true
	}
	if len(f.Marks) > 0 {
		if slices.Contains(f.Marks, "") {
			return nil, fmt.Errorf("%w: an empty mark", ErrInvalid)
		}
		c.marks = searchFor(f.Marks)
		c.toMark = c.marks.distances()
	}
	c.starts = []startNode{{spaces: true}, {spaces: true}, {spaces: true}}
	for i, s := range f.Starts {
		c.plant(s.Text, int32(len(f.Marks)+i)+1)
	}
	if f.Quiet[0] != "" {
		c.quiet = searchFor(f.Quiet[1:])
		c.plant(f.Quiet[0], quietEnd)
	}
	for i := len(c.starts) - 1; i >= 0; i-- {
		n := &c.starts[i]
		n.least = 1 << 20
		for _, to := range n.next {
			n.least = min(n.least, c.starts[to].least+1)
		}
		if n.end != 0 {
			n.least = 0
		}
	}
	c.starts[again].least, c.starts[line].least = c.starts[afresh].least, c.starts[afresh].least
	return c, nil
}

// plant adds a start to the trie; end is its startNode.end.
func (f *free) plant(text string, end int32) {
	at, quotes := int32(afresh), 0
	for i := range len(text) {
		n := &f.starts[at]
		if n.next == nil {
			n.next = map[byte]int32{}
		}
		to, known := n.next[text[i]]
		if !known {
			to = int32(len(f.starts))
			n.next[text[i]] = to
			f.starts = append(f.starts, startNode{})
		}
		if text[i] == '"' && (i == 0 || text[i-1] != '\\') {
			quotes++
		}
		f.starts[to].spaces = end > 0 && quotes%2 == 0 && spacesAfter(text[:i+1])
		at = to
	}
	if f.starts[at].end == 0 { // the first of equal starts
		f.starts[at].end = end
	}
}

// spacesAfter reports whether white space may follow the beginning of a start.
func spacesAfter(text string) bool {
	switch text[len(text)-1] {
	case '{', ':', '"':
		return true
	}
	return text == "```" || text == "```json"
}

// distances returns for each state the least number of bytes after which a string is found.
func (s *Stops) distances() []int32 {
	to := make([]int32, len(s.found))
	for i := range to {
		to[i] = 1 << 20
	}
	for changed := true; changed; {
		changed = false
		for i := range to {
			for _, next := range s.next[i*s.classes : (i+1)*s.classes] {
				d := to[next] + 1
				if s.found[next] >= 0 {
					d = 1
				}
				if d < to[i] {
					to[i], changed = d, true
				}
			}
		}
	}
	return to
}

// initial returns the spot at the beginning of an output.
func (f *free) initial() spot { return spot{quiet: f.Opened && f.quiet != nil} }

// next returns the spot after byte b. If a mark or a start ends there, hit is its index in begun,
// otherwise -1.
func (f *free) next(s spot, b byte) (_ spot, hit int32) {
	if s.quiet {
		to, found, _ := f.quiet.Next(StopState(s.mark), []byte{b})
		if found >= 0 {
			return spot{}, -1
		}
		return spot{start: outside, mark: int32(to), quiet: true}, -1
	}
	hit = -1
	if f.marks != nil {
		m := f.marks
		s.mark = int32(m.next[int(s.mark)*m.classes+int(m.class[b])])
		hit = int32(m.found[s.mark])
	}
	if f.Lines && b == '\n' && (s.start == outside || !f.starts[s.start].spaces) {
		s.start = line
		return s, hit
	}
	if s.start == outside {
		return s, hit
	}
	n := &f.starts[s.start]
	if n.spaces && (b == ' ' || b == '\n' || b == '\t' || b == '\r') || s.start == again && (b == ',' || b == ';') {
		return s, hit
	}
	root := s.start == again || s.start == line
	if root {
		n = &f.starts[afresh]
	}
	to, known := n.next[b]
	if !known || root && f.Quiet[0] != "" && b == f.Quiet[0][0] { // no reasoning but at the beginning
		s.start = outside
		return s, hit
	}
	s.start = to
	switch end := f.starts[to].end; {
	case end == quietEnd:
		return spot{start: outside, quiet: true}, -1
	case end > 0 && hit < 0:
		hit = end - 1
	}
	return s, hit
}

// least returns a lower bound for the bytes after which a mark or a start can be complete.
func (f *free) least(s spot) int32 {
	if s.quiet {
		return int32(len(f.Quiet[1])) - int32(f.quiet.depth[s.mark]) + 1
	}
	least := int32(1 << 20)
	if f.marks != nil {
		least = f.toMark[s.mark]
	}
	if s.start != outside {
		least = min(least, f.starts[s.start].least)
	}
	if f.Lines { // after a line break
		least = min(least, f.starts[line].least+1)
	}
	return least
}

// takes reports whether a special token with this content may stand at s, and returns the spot
// after it and the hit as next does. It may if it is a part of a mark, or in Special.
func (f *free) takes(s spot, content string) (to spot, hit int32, ok bool) {
	to, hit = s, -1
	for i := range len(content) {
		if to, hit = f.next(to, content[i]); hit >= 0 {
			return to, hit, i == len(content)-1
		}
	}
	part := !to.quiet && f.marks != nil && int(f.marks.depth[to.mark]) >= len(content)
	return to, -1, part || f.special[content]
}
