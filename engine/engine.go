package engine

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Backend computes batches on one device. Submit is called from one goroutine; the
// other methods from any. A backend that can exchange pages with host memory is also a
// Mover.
type Backend interface {
	// Info is constant over the backend's life.
	Info() Info
	// Submit validates and enqueues b and returns; it never waits for compute.
	// It fails with ErrInvalid (nothing ran, b is the caller's again), ErrBusy
	// when MaxInflight batches are pending, ErrClosed, or the *Error that ended
	// the device.
	Submit(b *Batch) (Ticket, error)
	// Close ends the backend. It aborts a running batch between layers and ends pending
	// tickets with ErrClosed. It returns when nothing is running; a second call does
	// nothing.
	Close() error
}

// Slot is a place for one sequence's sampling state: parameters, penalty counts
// and the last sampled token. The scheduler chooses it in [0, MaxSlots).
type Slot int32

// MaskID names a mask that a backend keeps, in [1, MaxMasks]. 0 names none: all tokens
// are allowed.
type MaskID int32

// Info describes a backend.
type Info struct {
	Name       string // "cpu"
	ModelID    string // hash of config, weights and KV type
	NumericsID string // "cpu/f32-seqk/v1"; changes whenever bits may change

	Vocab        int // tokens are in [0, Vocab)
	MaxPositions int // longest sequence, in tokens
	PageTokens   int // slots per page, a power of two from 1 to 256
	NumPages     int // pages in the pool, ids [0, NumPages)
	PageBytes    int // one page over all layers
	KVType       kv.DType

	MaxSlots    int // sequences with sampling state
	MaxRows     int // per batch
	MaxTokens   int // per batch, summed over rows
	MaxInflight int // submitted and not completed batches, at least 2
	// MaxMasks is the number of masks it keeps: 0 if it supports none, else at least
	// MaxRows·MaxInflight, so that each row in flight can have its own.
	MaxMasks int

	Cost StepCost // estimate of a step's duration

	Deterministic bool // keeps the promise in the package comment

	Capabilities Capabilities
}

// Capabilities list the outputs and parameters that a backend supports besides tokens. A batch that
// requests others fails with ErrInvalid, and the scheduler refuses requests that need them.
type Capabilities struct {
	Digests        bool // Row.Digest
	Logprobs       bool // SamplingParams.Logprobs and TopLogprobs
	PromptLogprobs bool // Row.PromptLogprobs
	Penalties      bool // repetition, presence and frequency penalties
}

// AllCapabilities returns the capabilities of a backend that can read the logits.
func AllCapabilities() Capabilities {
	return Capabilities{Digests: true, Logprobs: true, PromptLogprobs: true, Penalties: true}
}

// CheckSampling returns an error for the caller of a request if p asks for something
// that the backend does not support, else nil.
func (info *Info) CheckSampling(p *SamplingParams) error {
	switch c := &info.Capabilities; {
	case (p.Logprobs || p.TopLogprobs > 0) && !c.Logprobs:
		return fmt.Errorf("the backend %s gives no log-probabilities", info.Name)
	case p.Penalised() && !c.Penalties:
		return fmt.Errorf("the backend %s knows no repetition, presence or frequency penalties", info.Name)
	}
	return nil
}

// Batch is one step. Seq is strictly increasing over a backend's life.
type Batch struct {
	Seq    uint64
	After  []MoveID // moves that must have ended before the batch runs, see Mover; an unknown number has ended
	Binds  []SlotBind
	Swaps  []PageSwap
	Copies []PageCopy
	Drops  []MaskID  // masks that the backend forgets
	Masks  []MaskSet // after Drops: one batch may drop a mask and set it again
	Rows   []Row
}

// Row runs some tokens of one sequence: a prefill chunk or a decode step.
type Row struct {
	Slot Slot
	// Start is the position of the first token to run, which is also the number
	// of KV entries that the pages of the slot's table already hold.
	Start int32
	// Tokens are the n >= 1 tokens at [Start, Start+n). Empty if Deferred.
	Tokens []kv.Token
	// Deferred: n = 1 and the token is the slot's last sampled one. If the slot
	// has sampled nothing since its bind, Submit fails with ErrInvalid.
	Deferred bool
	// Pages are appended to the slot's table, which then has at least
	// CeilPages(Start+n) pages by ascending position.
	Pages []kv.PageID
	// Sample one token after the last position; false for all chunks but the last.
	Sample bool
	// SampleIndex is the index of that token in the request's output, the
	// counter of the random generator.
	SampleIndex int32
	// Mask names a mask that this batch or an earlier one has set; 0 allows all tokens.
	// One that allows none fails the row.
	Mask MaskID
	// Digest asks for RowOut.Digest of a row that samples.
	Digest bool
	// PromptLogprobs asks for RowOut.Prompt. PromptTop, 0 to MaxTopLogprobs, is the number of
	// tokens of RowOut.PromptTop at each place.
	PromptLogprobs bool
	PromptTop      int32
}

// Len returns the number of tokens that the row runs.
func (r *Row) Len() int {
	if r.Deferred {
		return 1
	}
	return len(r.Tokens)
}

// SlotBind gives a slot to a sequence and resets its state. Pages begin the slot's
// table; more may follow by Row.Pages. Prompt and Output are the tokens that penalties
// count; they are needed only if a penalty is on.
type SlotBind struct {
	Slot     Slot
	Sampling SamplingParams
	Pages    []kv.PageID
	Prompt   []kv.Token
	Output   []kv.Token
}

// PageSwap replaces page At of a slot's table, usually by a page with the same KV: of
// two sequences that computed the same tokens, one page is kept. The tables are updated
// before the batch runs: first Binds, then Row.Pages, then Swaps.
type PageSwap struct {
	Slot Slot
	At   int32
	Page kv.PageID
}

// MaskSet sets the tokens of a mask, in place of previous ones. The backend keeps the
// mask until a batch drops it or sets it again, so rows that may sample the same tokens
// share one upload. Token t is allowed if bit t%64 of Bits[t/64] is set: a vocabulary
// of 32,768 takes 4 KiB.
type MaskSet struct {
	ID   MaskID
	Bits []uint64
}

// PageCopy copies the first Tokens slots of page Src to page Dst, in all layers.
type PageCopy struct {
	Src, Dst kv.PageID
	Tokens   int32
}

// Ticket is the handle on one submission. Its methods may be called from any goroutine.
type Ticket interface {
	// Done is closed on completion.
	Done() <-chan struct{}
	// Result returns ErrPending before completion, then the result or the error that
	// ended the batch: ErrClosed or an *Error.
	Result() (*Result, error)
}

// Result is the outcome of a batch; it belongs to the caller.
type Result struct {
	Seq   uint64
	Out   []RowOut // one per sampled, failed or logprob row, ascending by Row
	Stats StepStats
}

// RowOut is the outcome of row Row.
type RowOut struct {
	Row     int
	Token   kv.Token // if the row sampled
	Logprob float32  // natural log, of Token, from the raw logits
	Top     []TokenLogprob
	// Prompt has the log-probability of each token of the row, except the sequence's
	// first, given the tokens before it. The row's first token needs the logits of the
	// position before: NaN if the slot did not run that position itself.
	Prompt []float32
	// PromptTop has the Row.PromptTop most probable tokens at each place of Prompt, best
	// first; none where Prompt is NaN. nil if Row.PromptTop is 0.
	PromptTop [][]TokenLogprob
	Digest    uint64 // XXH3-64 over the raw logits, f32 little-endian, if asked
	Err       error  // this row only, ErrLogits, ErrNoToken or ErrMove; its pages must not be cached
}

// TokenLogprob is one entry of the top-k list, best first.
type TokenLogprob struct {
	Token   kv.Token
	Logprob float32
}

// StepStats are counted by the backend where it computes, so that they check the
// scheduler's own counts.
type StepStats struct {
	GivenTokens    int   // positions run whose token was in the batch
	DeferredTokens int   // positions run whose token was the slot's last sample
	KVTokensRead   int64 // KV entries attended to, summed over positions
	Samples        int
	CopiedPages    int
	Nanos          int64 // device time of the step
}

// Sentinels of Submit, Mover.Move and Ticket.Result.
var (
	ErrInvalid = errors.New("engine: invalid batch")
	ErrBusy    = errors.New("engine: too many batches in flight")
	ErrClosed  = errors.New("engine: closed")
	ErrPending = errors.New("engine: not completed yet")
)

// ErrNoToken is wrapped by RowOut.Err when a row's mask and biases forbid every token.
var ErrNoToken = errors.New("engine: mask and biases allow no token")

// ErrLogits is wrapped by RowOut.Err when a row's logits are not finite.
var ErrLogits = errors.New("engine: logits are not finite")

// Error ends a device: every later call fails with it and all KV is gone.
type Error struct {
	Backend string
	Op      string
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("engine: %s failed in %s: %v", e.Backend, e.Op, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
