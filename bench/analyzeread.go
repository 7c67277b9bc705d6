package bench

import (
	"bufio"
	"fmt"
	"io"

	"github.com/coppice-llm/coppice/kv"
)

// Sequences holds what an analysis reads of a trace: the lengths of its requests, and
// which of their blocks are equal.
type Sequences struct {
	Form string // "prefix trace" or "Mooncake trace"
	// GrainTokens is the smallest block size that the trace can be analysed at: 1 if
	// it records tokens, [MooncakeBlock] if it records block ids.
	GrainTokens int
	// Outputs reports whether the trace records output lengths.
	Outputs bool

	requests []sequence
}

// sequence is a request. Either tokens or ids is set.
type sequence struct {
	prompt, output int // tokens
	tokens         []kv.Token
	ids            []int64 // one for each whole grain of the prompt
}

// Requests returns the number of requests.
func (s *Sequences) Requests() int { return len(s.requests) }

// OpenSequences reads a prefix trace or a Mooncake trace from a file; the first bytes
// decide. The errors are those of [ReadTrace] and [ReadMooncake].
func OpenSequences(path string) (*Sequences, error) {
	return openTrace(path, ReadSequences)
}

// ReadSequences reads a prefix trace or a Mooncake trace from r, as [OpenSequences] does from a
// file.
func ReadSequences(r io.Reader) (*Sequences, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	first, err := b.Peek(len(traceMagic))
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("bench: reading a trace: %w", err)
	}
	switch {
	case string(first) == traceMagic:
		t, err := ReadTrace(b)
		if err != nil {
			return nil, err
		}
		return t.Sequences(), nil
	case len(first) > 0 && first[0] == '{':
		return readMooncakeSequences(b)
	}
	return nil, fmt.Errorf("%w: it begins with %q, want %q, or { for a line of a Mooncake trace", ErrTrace, first, traceMagic)
}

// Sequences returns the requests of a prefix trace for [Analyze]. A prefix trace
// records no outputs. The tokens are shared with t.
func (t *Trace) Sequences() *Sequences {
	s := &Sequences{Form: "prefix trace", GrainTokens: 1}
	for _, request := range t.requests {
		s.requests = append(s.requests, sequence{prompt: len(request), tokens: request})
	}
	return s
}

// readMooncakeSequences reads the same file as [ReadMooncake], but keeps the lengths
// as they were served rather than scaled down by [MooncakeScale].
func readMooncakeSequences(r io.Reader) (*Sequences, error) {
	requests, err := readMooncakeRequests(r)
	if err != nil {
		return nil, err
	}
	s := &Sequences{Form: "Mooncake trace", GrainTokens: MooncakeBlock, Outputs: true}
	for _, q := range requests {
		s.requests = append(s.requests, sequence{prompt: q.Prompt, output: q.Output, ids: q.IDs[:kv.FloorPages(q.Prompt, MooncakeBlock)]})
	}
	return s, nil
}

// whole returns the number of whole blocks of a request. blockTokens must be a
// multiple of the grain.
func (q *sequence) whole(blockTokens int) int { return kv.FloorPages(q.prompt, blockTokens) }

// blockHasher walks the whole blocks of a request from the first.
type blockHasher struct {
	q      *sequence
	tokens int // per block
	grains int // ids per block
	hasher *kv.Hasher
	last   kv.BlockHash // of the block before, if the request has ids
	at     int          // next token or id
}

func (s *Sequences) hasher(i, blockTokens int) blockHasher {
	return blockHasher{q: &s.requests[i], tokens: blockTokens, grains: blockTokens / s.GrainTokens, hasher: kv.NewHasher(kv.Namespace{}, blockTokens)}
}

// next returns the hash of the next whole block, chained with the hash of the block before. In a
// trace of ids, an id should already stand for a block with everything before it; next chains ids
// nonetheless, because a trace may reuse an id after another prefix.
func (h *blockHasher) next() kv.BlockHash {
	if h.q.tokens != nil {
		hash, _ := h.hasher.Next(h.q.tokens[h.at : h.at+h.tokens])
		h.at += h.tokens
		return hash
	}
	for range h.grains {
		h.last = kv.Chain(h.last, kv.LocalHash(h.q.ids[h.at]))
		h.at++
	}
	return h.last
}
