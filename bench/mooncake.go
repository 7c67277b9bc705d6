package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// ErrMooncake is wrapped by the errors of [ReadMooncake] and [OpenMooncake]
// that blame the bytes rather than the reading of them.
var ErrMooncake = errors.New("bench: bad Mooncake trace")

// The scale of a Mooncake trace. The file identifies blocks of MooncakeBlock tokens, but does not
// have their tokens. So tokens are made up: MooncakeBlock/MooncakeScale = 16 tokens for a block.
// One token of the trace thus stands for MooncakeScale = 32 served tokens. This keeps the shares
// of equal prefixes and the relative lengths, and 145 million served tokens take only 18 MB. With
// pages of up to 16 tokens (512 served tokens) a cache sees all the sharing that the file records;
// with larger pages it sees less.
const (
	MooncakeBlock = 512
	MooncakeScale = 32
)

const (
	mooncakeTokens = MooncakeBlock / MooncakeScale // tokens made up for a whole block
	// mooncakeMaxID is the largest id whose made-up tokens, 16*id to 16*id+15, still
	// fit in 32 bits. So different blocks never share a token.
	mooncakeMaxID = 1<<32/mooncakeTokens - 1
	// mooncakeMaxLine bounds a line, in bytes. MaxRequestTokens take 32,768 ids of at
	// most 9 digits: some 330 kB.
	mooncakeMaxLine = 1 << 20
)

// OpenMooncake reads a recorded trace of the Mooncake project from a file; see
// [ReadMooncake].
func OpenMooncake(path string) (*Trace, error) { return openTrace(path, ReadMooncake) }

// ReadMooncake reads a recorded trace of the Mooncake project (JSON lines; its
// paper is arXiv 2407.00079): a line is a request with timestamp (ms from the
// start), input_length, output_length (tokens) and hash_ids, one for each
// MooncakeBlock tokens of the input, of which the last block may be partial. Equal ids
// are equal blocks after equal prefixes. The order of lines is the order of arrival.
// The requests of the trace are prompts without outputs, which have no ids.
//
// A whole block becomes 16 tokens; a partial block of n tokens becomes
// ceil(n / [MooncakeScale]) tokens. They are numbered from 16 times the id, so equal
// ids give equal tokens, and different ids differ already in their first token.
//
// An error that wraps [ErrMooncake] names the line: bad JSON, an unknown or missing
// field, a number out of range, decreasing timestamps, a number of ids that does not
// fit input_length, an id twice in one request.
func ReadMooncake(r io.Reader) (*Trace, error) {
	requests, err := readMooncakeRequests(r)
	if err != nil {
		return nil, err
	}
	t := &Trace{}
	for i := range requests {
		t.add(requests[i].tokens())
		t.turns = append(t.turns, traceTurn{At: time.Duration(requests[i].Millis) * time.Millisecond})
	}
	return t, nil
}

// MooncakeRequest is a line of a Mooncake trace, with lengths in served tokens.
type MooncakeRequest struct {
	Millis         int64 // from the start
	Prompt, Output int   // tokens
	IDs            []int64
}

// OpenMooncakeRequests reads the lines of a Mooncake trace from a file, in order of
// arrival. Errors are those of [ReadMooncake].
func OpenMooncakeRequests(path string) ([]MooncakeRequest, error) {
	return openTrace(path, readMooncakeRequests)
}

// readMooncakeRequests reads and checks all lines; see ReadMooncake for its errors.
func readMooncakeRequests(r io.Reader) ([]MooncakeRequest, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mooncakeMaxLine)
	var all []MooncakeRequest
	last := int64(0)
	for lines.Scan() {
		line := len(all) + 1
		if line > MaxTraceRequests {
			return nil, fmt.Errorf("%w: line %d: more than %d requests", ErrMooncake, line, MaxTraceRequests)
		}
		e, err := parseMooncake(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrMooncake, line, err)
		}
		if *e.Timestamp < last {
			return nil, fmt.Errorf("%w: line %d: timestamp %d comes after %d: sort the lines by time", ErrMooncake, line, *e.Timestamp, last)
		}
		last = *e.Timestamp
		all = append(all, MooncakeRequest{last, int(*e.InputLength), int(*e.OutputLength), e.HashIDs})
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%w: line %d: longer than %d bytes", ErrMooncake, len(all)+1, mooncakeMaxLine)
	case err != nil:
		return nil, fmt.Errorf("bench: reading a Mooncake trace after line %d: %w", len(all), err)
	case len(all) == 0:
		return nil, fmt.Errorf("%w: line 1: the file is empty, want one JSON object a line", ErrMooncake)
	}
	return all, nil
}

// mooncakeEntry is a line. A nil pointer means that the field is missing.
type mooncakeEntry struct {
	Timestamp    *int64  `json:"timestamp"`
	InputLength  *int64  `json:"input_length"`
	OutputLength *int64  `json:"output_length"`
	HashIDs      []int64 `json:"hash_ids"`
}

// parseMooncake parses and validates a line.
func parseMooncake(line []byte) (*mooncakeEntry, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var e mooncakeEntry
	if err := d.Decode(&e); err != nil {
		if err == io.EOF {
			err = errors.New("it is empty")
		}
		return nil, fmt.Errorf("want a JSON object with timestamp, input_length, output_length and hash_ids: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON object")
	}
	return &e, e.validate()
}

// validate returns the first fault of a line.
func (e *mooncakeEntry) validate() error {
	for _, f := range []struct {
		name  string
		value *int64
		least int64
		most  int64
	}{
		{"timestamp", e.Timestamp, 0, 1<<53 - 1},
		{"input_length", e.InputLength, 1, MaxRequestTokens},
		{"output_length", e.OutputLength, 0, MaxRequestTokens},
	} {
		if f.value == nil {
			return fmt.Errorf("%s is missing", f.name)
		}
		if *f.value < f.least || *f.value > f.most {
			return fmt.Errorf("%s is %d, want %d to %d", f.name, *f.value, f.least, f.most)
		}
	}
	input := int(*e.InputLength)
	if want := kv.CeilPages(input, MooncakeBlock); len(e.HashIDs) != want {
		return fmt.Errorf("%d hash_ids for input_length %d, want %d, one for each %d tokens", len(e.HashIDs), input, want, MooncakeBlock)
	}
	seen := make(map[int64]bool, len(e.HashIDs))
	for i, id := range e.HashIDs {
		if id < 0 || id > mooncakeMaxID {
			return fmt.Errorf("hash_ids[%d] is %d, want 0 to %d", i, id, mooncakeMaxID)
		}
		if seen[id] {
			return fmt.Errorf("hash_ids[%d] is %d, which came before in the same request, but an id stands for a block with all that is before it", i, id)
		}
		seen[id] = true
	}
	return nil
}

// tokens makes up the tokens of the prompt: len = ceil(Prompt / MooncakeScale).
func (r *MooncakeRequest) tokens() []kv.Token {
	tokens := make([]kv.Token, 0, kv.CeilPages(r.Prompt, MooncakeScale))
	for i, id := range r.IDs {
		n := kv.CeilPages(min(r.Prompt-i*MooncakeBlock, MooncakeBlock), MooncakeScale)
		for j := range n {
			tokens = append(tokens, kv.Token(int(id)*mooncakeTokens+j))
		}
	}
	return tokens
}
