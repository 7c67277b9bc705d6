package decisions

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/coppice-llm/coppice/router"
)

// Recording holds the contents of a recording.
type Recording struct {
	Head      Head
	Workers   []Worker
	Decisions []Decision // ascending by At

	parents map[Hash]Hash // of each block; 0 is the parent of a prompt's first
}

// Chain appends the blocks of the prompt of d, a decision of r, to dst, the first one first.
func (r *Recording) Chain(d *Decision, dst []Hash) []Hash {
	from := len(dst)
	for at := d.last; at != 0; at = r.parents[at] {
		dst = append(dst, at)
	}
	slices.Reverse(dst[from:])
	return dst
}

// maxLine bounds a line: a prompt of maxBlocks blocks of 19 bytes, and MaxCandidates candidates, take far less.
const maxLine = 4 << 20

// Read reads a recording. A last line without an end is left out, since its writer may have been killed. Errors name the line.
func Read(from io.Reader) (*Recording, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	r := &Recording{parents: map[Hash]Hash{}}
	for n := 1; ; n++ {
		text, err := readLine(in)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = r.line(text, n == 1)
		}
		if err != nil {
			return nil, fmt.Errorf("decisions: line %d: %w", n, err)
		}
	}
	if r.Head.Version == 0 {
		return nil, errors.New("decisions: there is no head: this is no recording of decisions")
	}
	slices.SortStableFunc(r.Decisions, func(a, b Decision) int { return int(min(max(a.At-b.At, -1), 1)) })
	return r, nil
}

// readLine returns the next line without its end. The error is io.EOF at the end, also after a line without an end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := in.ReadSlice('\n')
		if text = append(text, part...); err == nil {
			return text[:len(text)-1], nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
		if len(text) > maxLine {
			return nil, fmt.Errorf("it has over %d bytes", maxLine)
		}
	}
}

// line adds a line. It is the first one if first is set.
func (r *Recording) line(text []byte, first bool) error {
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return err
	}
	switch {
	case first != (l.Head != nil):
		return errors.New("a recording begins with its only head")
	case first:
		return r.head(*l.Head)
	case l.Worker != nil:
		r.Workers = append(r.Workers, *l.Worker)
		return nil
	case l.Decision != nil:
		return r.decision(l.Decision)
	}
	return errors.New("it is neither a worker nor a decision")
}

func (r *Recording) head(h Head) error {
	if h.Version != Version {
		return fmt.Errorf("its version is %d, want %d", h.Version, Version)
	}
	if h.BlockTokens < 1 || h.BlockTokens > router.MaxPromptTokens {
		return fmt.Errorf("block_tokens is %d", h.BlockTokens)
	}
	r.Head = h
	return nil
}

// decision checks d and adds it, and its blocks.
func (r *Recording) decision(d *Decision) error {
	if d.Chosen < 0 || d.Chosen >= len(r.Workers) {
		return fmt.Errorf("it chose worker %d of %d", d.Chosen, len(r.Workers))
	}
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Worker < 0 || c.Worker >= len(r.Workers) || len(c.Overlap) > 5 || slices.ContainsFunc(c.Overlap, func(n int) bool { return n < 0 || n > router.MaxPromptTokens }) {
			return fmt.Errorf("its candidate %d is worker %d of %d with the overlap %v", i, c.Worker, len(r.Workers), c.Overlap)
		}
	}
	if d.PromptTokens < 1 || d.PromptTokens > router.MaxPromptTokens || d.OutputTokens < 0 || d.TTFT < 0 || d.Total < 0 || d.At < 0 ||
		d.ExpectedOutput < 0 || d.ExpectedOutput > router.MaxPromptTokens {
		return errors.New("it has a number out of its range")
	}
	most := min(maxBlocks, d.PromptTokens/r.Head.BlockTokens)
	if _, ok := r.parents[d.After]; d.After != 0 && !ok {
		return fmt.Errorf("its first blocks end with %016x, which is in no earlier line", uint64(d.After))
	}
	d.last = d.After
	for _, h := range d.Blocks {
		if parent, ok := r.parents[h]; h == 0 || ok && parent != d.last {
			return fmt.Errorf("its block %016x is after another one than in an earlier line", uint64(h))
		}
		r.parents[h], d.last = d.last, h
	}
	blocks := 0
	for at := d.last; at != 0; at = r.parents[at] { // without a circle: the parent of each block was there before it
		if blocks++; blocks > most {
			return fmt.Errorf("it has over %d blocks, of %d tokens", most, d.PromptTokens)
		}
	}
	d.Blocks = nil
	r.Decisions = append(r.Decisions, *d)
	return nil
}
