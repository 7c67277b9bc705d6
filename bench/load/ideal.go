package load

import (
	"sync"

	"github.com/coppice-llm/coppice/kv"
)

// maxSeen bounds the memory of a run for the ideal hit rate, in bytes of prompts that differ: 268
// million tokens. Later requests have no ideal, and a note says so.
const maxSeen = 1 << 30

// seen holds the prompts and answers of a run, and finds how much of a new prompt was there before:
// the hit rate of a cache without a limit that computes each prefix once. It is a compressed trie
// of their keys; memory is the bytes that differ. It belongs to one goroutine at a time.
type seen struct {
	root  seenNode
	bytes int // sum of the lengths of all labels
	limit int // of bytes
}

// seenNode is a node of the trie. No two children begin with the same byte.
type seenNode struct {
	label []byte // between the parent and this node; not empty but at the root
	next  map[byte]*seenNode
}

// add stores a key. known is the length of the longest prefix that it has in common with a key
// stored before. ok is false if the limit is reached; known is then a lower bound.
func (s *seen) add(key []byte) (known int, ok bool) {
	at := &s.root
	for rest := key; len(rest) > 0; {
		child := at.next[rest[0]]
		if child == nil {
			return known, s.attach(at, rest)
		}
		n := common(child.label, rest)
		known += n
		if rest = rest[n:]; n < len(child.label) {
			if len(rest) > 0 { // else the key ends inside of the label: nothing is new
				child.split(n)
				return known, s.attach(child, rest)
			}
			return known, s.bytes <= s.limit
		}
		at = child
	}
	return known, s.bytes <= s.limit
}

// attach stores tail below a node, unless the limit is reached; it reports whether it was stored.
func (s *seen) attach(to *seenNode, tail []byte) bool {
	s.bytes += len(tail)
	if s.bytes > s.limit {
		s.bytes = s.limit + 1 // from now on nothing is known
		return false
	}
	if to.next == nil {
		to.next = map[byte]*seenNode{}
	}
	to.next[tail[0]] = &seenNode{label: append([]byte(nil), tail...)}
	return true
}

// split cuts the label of a node after n bytes. The rest becomes its only child.
func (n *seenNode) split(at int) {
	rest := &seenNode{label: n.label[at:], next: n.next}
	n.label, n.next = n.label[:at:at], map[byte]*seenNode{rest.label[0]: rest}
}

// common returns the length of the longest common prefix.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// mark says that the first bytes of a key are this many tokens, by the server's count.
type mark struct{ bytes, tokens int }

// share is how much of a prompt was seen before: known of all bytes of its key.
type share struct {
	known, of int
	from      mark // of the session's request before, if the prompt continues it
}

// tokens returns the share in tokens of a prompt of n tokens, by the server's count: in proportion
// to the bytes, from the mark on if that was seen. The last token of a prompt is always computed, as
// its logits choose the first token of the answer.
func (s share) tokens(n int) int {
	from := s.from
	if from.bytes > s.known || from.tokens > n || from.bytes >= s.of {
		from = mark{}
	}
	if s.of == 0 || n == 0 {
		return 0
	}
	more := int64(s.known-from.bytes) * int64(n-from.tokens) / int64(s.of-from.bytes)
	return min(from.tokens+int(more), n-1)
}

// ideal computes what a cache without a limit would have found. It is safe for concurrent use.
type ideal struct {
	endpoint Endpoint
	mu       sync.Mutex
	seen     seen
	key      []byte // scratch
}

// meet stores the prompt of a request that is about to be sent, and returns how much of it was seen
// before. ok is false if that is unknown.
func (i *ideal) meet(d *dialogue) (known share, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = d.key(i.key[:0], i.endpoint)
	n, ok := i.seen.add(i.key)
	if i.endpoint != Chat && len(d.tokens) > 0 {
		n -= n % tokenBytes
	}
	return share{n, len(i.key), d.mark}, ok
}

// sent marks the prompt of d with the server's count of its tokens.
func (i *ideal) sent(d *dialogue, got *sample) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = d.key(i.key[:0], i.endpoint)
	d.mark = mark{len(i.key), got.prompt}
}

// answered stores the answer to a prompt, and marks it. The last token of an answer is never
// computed, as no token comes after it.
func (i *ideal) answered(d *dialogue, got *sample) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = d.key(i.key[:0], i.endpoint)
	d.mark = mark{len(i.key), got.prompt} // where the next prompt parts, as text has a line feed before the answer
	switch {
	case i.endpoint == Chat:
		i.key = append(i.key, message("assistant", string(got.text))...)
	case len(d.tokens) == 0:
		i.key = append(i.key, got.text...)
	case len(got.tokens) > 0:
		i.key = kv.AppendTokens(i.key, got.tokens[:len(got.tokens)-1])
	}
	i.seen.add(i.key)
	if i.endpoint == Chat || len(d.tokens) > 0 {
		d.mark = mark{len(i.key), got.prompt + max(0, got.output-1)}
	}
}

// reached sums up the ideal and what the server reached, over the completed requests.
type reached struct {
	ideal, of       int // prompt tokens that the ideal cache would have found, of all prompt tokens of the requests with an ideal
	recomputed, new int // prompt tokens computed again, and for the first time; of the requests with an ideal and the server's figure
	unknown         int // requests without an ideal
}

func (r *reached) add(s *sample) {
	if s.ideal < 0 {
		r.unknown++
		return
	}
	r.ideal += s.ideal
	r.of += s.prompt
	if s.cached >= 0 {
		r.recomputed += max(0, s.ideal-s.cached)
		r.new += s.prompt - s.ideal
	}
}
