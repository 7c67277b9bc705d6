package mocker

import "github.com/coppice-llm/coppice/kv"

// sequence is the state of a request, waiting or running. Only running ones hold slots.
type sequence struct {
	req      *Request
	prompt   int            // tokens
	tokens   int            // prompt and output so far
	computed int            // tokens with KV, counting the pass in progress
	reached  int            // largest computed at the end of any pass: tokens below it are recomputed
	chunk    int            // tokens that the pass in progress adds to computed
	slots    []slot         // if running: its blocks, in order
	named    int            // number of leading slots with names
	hashes   []kv.BlockHash // of all blocks named since the first admission, kept over preemptions
	decoding bool           // the prompt is computed; after a preemption, prompt and output
	resumed  bool           // preempted at least once
	gone     bool           // preempted while the next pass is composed
}

// output returns the number of output tokens so far.
func (s *sequence) output() int { return s.tokens - s.prompt }

// cachedNames returns the hashes of the blocks that it may find when admitted: those of
// the prompt, and after a preemption also of its output.
func (s *sequence) cachedNames(blockTokens int) []kv.BlockHash {
	if s.resumed && len(s.hashes) > 0 {
		return s.hashes
	}
	return s.req.Hashes[:min(len(s.req.Hashes), s.prompt/blockTokens)]
}

// namer computes local hashes of blocks, including those with output tokens.
type namer struct {
	seed   uint64
	tokens []kv.Token // scratch, one block
}

// local returns the local hash of a sequence's index-th block.
func (n *namer) local(s *sequence, index, blockTokens int) kv.LocalHash {
	r := s.req
	from, to := index*blockTokens, (index+1)*blockTokens
	if to <= s.prompt {
		return r.Locals[index]
	}
	if len(r.Output) == 0 {
		return kv.LocalHash(mix(mix(n.seed, uint64(r.ID)), uint64(index)))
	}
	n.tokens = n.tokens[:0]
	if from < s.prompt {
		n.tokens = append(n.tokens, r.Tokens[from:]...)
	}
	n.tokens = append(n.tokens, r.Output[max(0, from-s.prompt):to-s.prompt]...)
	return kv.HashLocal(n.tokens, r.Namespace.Seed())
}

// mix hashes two numbers into one, by the output function of SplitMix64 (Steele,
// Lea and Flood 2014).
func mix(a, b uint64) uint64 { return finish(a ^ finish(b+0x9e3779b97f4a7c15)) }

func finish(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// queue is the double-ended queue of waiting sequences, a ring buffer.
type queue struct {
	ring []*sequence // len is a power of two, or 0
	head int
	len  int
}

func (q *queue) at(i int) *sequence     { return q.ring[(q.head+i)&(len(q.ring)-1)] }
func (q *queue) set(i int, s *sequence) { q.ring[(q.head+i)&(len(q.ring)-1)] = s }

func (q *queue) grow() {
	if q.len < len(q.ring) {
		return
	}
	ring := make([]*sequence, max(16, 2*len(q.ring)))
	for i := range q.len {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}

func (q *queue) pushBack(s *sequence) {
	q.grow()
	q.len++
	q.set(q.len-1, s)
}

func (q *queue) pushFront(s *sequence) {
	q.grow()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	q.len++
	q.set(0, s)
}

func (q *queue) popFront() {
	q.set(0, nil)
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.len--
}

// cut removes the i-th element. Cost: O(number of elements after it).
func (q *queue) cut(i int) {
	for ; i < q.len-1; i++ {
		q.set(i, q.at(i+1))
	}
	q.set(q.len-1, nil)
	q.len--
}
