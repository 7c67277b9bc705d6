package mocker

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Reasons to refuse a request. The errors of [Worker.Submit] wrap one of these.
var (
	ErrRequest   = errors.New("mocker: invalid request")
	ErrTooLarge  = errors.New("mocker: request needs more blocks than the device has")
	ErrQueueFull = errors.New("mocker: too many waiting requests")
)

// Request is a prompt and the length of its output.
type Request struct {
	ID           int            // chosen by the caller, for reports
	Tokens       []kv.Token     // of the prompt
	Locals       []kv.LocalHash // local hashes of the prompt's full blocks; further elements are ignored
	Hashes       []kv.BlockHash // hashes of the same blocks, by kv.Chain
	OutputTokens int            // at least 1. The request ends after this many tokens
	// Output holds the output tokens, at least OutputTokens. Blocks of output get the hashes
	// that the same tokens have in a later prompt that contains the answer.
	Output []kv.Token
}

// check returns why a worker with cfg can't run the request, nil if it can. It costs one hash
// for each full block of the prompt.
func (r *Request) check(cfg *Config) error {
	prompt := len(r.Tokens)
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w %d: %s", ErrRequest, r.ID, fmt.Sprintf(format, args...))
	}
	switch {
	case prompt < 1 || prompt > MaxTokens:
		return bad("prompt of %d tokens, want 1 to %d", prompt, MaxTokens)
	case r.OutputTokens < 1 || r.OutputTokens > MaxTokens-prompt:
		return bad("OutputTokens is %d, want 1 to %d", r.OutputTokens, MaxTokens-prompt)
	case len(r.Output) < r.OutputTokens:
		return bad("Output has %d tokens, want all %d", len(r.Output), r.OutputTokens)
	}
	// The last token of output needs no KV.
	if blocks := kv.CeilPages(prompt+r.OutputTokens-1, cfg.BlockTokens); blocks > cfg.Blocks {
		return fmt.Errorf("%w: request %d needs %d of %d", ErrTooLarge, r.ID, blocks, cfg.Blocks)
	}
	full := kv.FloorPages(prompt, cfg.BlockTokens)
	if len(r.Hashes) < full || len(r.Locals) < full {
		return bad("%d Hashes and %d Locals, want those of %d full blocks of %d tokens", len(r.Hashes), len(r.Locals), full, cfg.BlockTokens)
	}
	for i, local := range r.Locals[:full] {
		want := kv.BlockHash(local)
		if i > 0 {
			want = kv.Chain(r.Hashes[i-1], local)
		}
		if r.Hashes[i] != want {
			return bad("Hashes[%d] is %#x, but kv.Chain gives %#x", i, r.Hashes[i], want)
		}
	}
	return nil
}

// Report is the outcome of one or more passes: each Pass adds to it.
type Report struct {
	Tokens []int      // request IDs, one for each output token, in order of admission
	Ended  []int      // IDs of the requests that ended
	Events []kv.Event // cache events of the pass; their slices are valid until the worker's next Pass

	Computed   int // prompt tokens computed for the first time
	Cached     int // prompt tokens found in the cache by requests admitted for the first time
	Recomputed int // tokens computed again after preemptions

	Preempted []int // IDs of the requests preempted when the pass began
}

// Reset empties a report and keeps its memory.
func (r *Report) Reset() {
	*r = Report{Tokens: r.Tokens[:0], Ended: r.Ended[:0], Events: r.Events[:0], Preempted: r.Preempted[:0]}
}

// Usage is the load of a worker.
type Usage struct {
	UsedBlocks int // blocks that running requests hold
	Waiting    int
	Running    int
}

// Stats counts events since New.
type Stats struct {
	Passes      uint64
	Tokens      uint64 // output
	Computed    uint64 // as in Report
	Cached      uint64
	Recomputed  uint64
	Preemptions uint64
	Evicted     uint64 // blocks
	MostUsed    int    // most active blocks at the beginning of a pass
}
