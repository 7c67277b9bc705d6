package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/coppice-llm/coppice/kv"
)

// Sequences are the requests of a trace as far as an analysis goes: lengths, and
// which blocks are equal.
type Sequences struct {
	Form string // "prefix trace" or "Mooncake trace"
	// GrainTokens is the smallest block that the trace tells of: 1 where it has
	// tokens, [MooncakeBlock] where it has ids of blocks.
	GrainTokens int
	// Outputs tells whether it says how long outputs were.
	Outputs bool

	requests []sequence
}

// sequence is a request; it has tokens or ids.
type sequence struct {
	prompt, output int // tokens
	tokens         []kv.Token
	ids            []int64 // of whole grains
}

// Requests is the number of requests.
func (s *Sequences) Requests() int { return len(s.requests) }

// OpenSequences reads a trace of either form from a file: which it is, its first
// bytes tell. The errors are those of [ReadTrace] and [ReadMooncake].
func OpenSequences(path string) (*Sequences, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("bench: opening a trace: %w", err)
	}
	defer f.Close()
	s, err := ReadSequences(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ReadSequences is [OpenSequences] for a stream.
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

// Sequences are the requests of a prefix trace, which has no outputs.
func (t *Trace) Sequences() *Sequences {
	s := &Sequences{Form: "prefix trace", GrainTokens: 1}
	for _, request := range t.requests {
		s.requests = append(s.requests, sequence{prompt: len(request), tokens: request})
	}
	return s
}

// readMooncakeSequences reads what [ReadMooncake] reads, but with the lengths as they were
// served.
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

// whole is the number of whole blocks of a request; a block is a multiple of the
// grain.
func (q *sequence) whole(blockTokens int) int { return kv.FloorPages(q.prompt, blockTokens) }

// hasher walks the blocks of a request.
type blockHasher struct {
	q      *sequence
	tokens int // per block
	grains int // ids per block
	hasher *kv.Hasher
	last   kv.BlockHash
	at     int
}

func (s *Sequences) hasher(i, blockTokens int) blockHasher {
	return blockHasher{q: &s.requests[i], tokens: blockTokens, grains: blockTokens / s.GrainTokens, hasher: kv.NewHasher(kv.Namespace{}, blockTokens)}
}

// next is the chained hash of the next whole block. Ids stand for a block with all
// that is before it, and are chained nonetheless: a trace may be wrong there.
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
