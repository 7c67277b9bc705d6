package engine

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Backend computes batches on one device. Submit is called from one goroutine; the
// other methods from any. A backend that can exchange pages with host memory is a Mover
// too.
type Backend interface {
	// Info is constant over the backend's life.
	Info() Info
	// Submit validates and enqueues b and returns; it never waits for compute.
	// It fails with ErrInvalid (nothing ran, b is the caller's again), ErrBusy
	// when MaxInflight batches are pending, ErrClosed, or the *Error that ended
	// the device.
	Submit(b *Batch) (Ticket, error)
	// Close ends the backend. A running batch is aborted between layers, and
	// pending tickets end with ErrClosed. It returns when nothing runs any more;
	// a second call does nothing.
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
	// MaxMasks is how many masks it keeps: 0 if it knows none, else at least
	// MaxRows·MaxInflight, so that each row in flight can have its own.
	MaxMasks int

	Cost StepCost // how long a step takes

	Deterministic bool // keeps the promise in the package comment

	Capabilities Capabilities
}

// Capabilities say what a batch may ask for beside tokens. A backend lists what it
// gives; a batch that asks for more fails with ErrInvalid, and the scheduler refuses
// a request that would need it.
type Capabilities struct {
	Digests        bool // Row.Digest
	Logprobs       bool // SamplingParams.Logprobs and TopLogprobs
	PromptLogprobs bool // Row.PromptLogprobs
	Penalties      bool // repetition, presence and frequency penalties
}

// AllCapabilities are those of a backend that has the logits at hand.
func AllCapabilities() Capabilities {
	return Capabilities{Digests: true, Logprobs: true, PromptLogprobs: true, Penalties: true}
}

// CheckSampling reports, as an error for the caller of a request, what p asks for that
// the backend does not give; nil if it gives all.
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
	After  []MoveID // moves that must have ended before the batch runs, see Mover; those that are not pending have
	Binds  []SlotBind
	Swaps  []PageSwap
	Copies []PageCopy
	Drops  []MaskID  // masks that the backend forgets
	Masks  []MaskSet // after Drops: one batch may drop a mask and set it anew
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
	// PromptLogprobs asks for RowOut.Prompt, and PromptTop, of 0 to MaxTopLogprobs, for so
	// many tokens of RowOut.PromptTop in each place.
	PromptLogprobs bool
	PromptTop      int32
}

// Len is the number of tokens that the row runs.
func (r *Row) Len() int {
	if r.Deferred {
		return 1
	}
	return len(r.Tokens)
}

// SlotBind gives a slot to a sequence and resets its state. Pages are the slot's table
// from now on, as far as there are any by now. Prompt and Output are needed only if a
// penalty is on: the tokens that it counts.
type SlotBind struct {
	Slot     Slot
	Sampling SamplingParams
	Pages    []kv.PageID
	Prompt   []kv.Token
	Output   []kv.Token
}

// PageSwap replaces page At of a slot's table, by one with the same KV as a rule: of two
// sequences that computed the same the pages of one are kept. The tables are brought up
// to date before anything of a batch runs: by Binds, Row.Pages, Swaps, in this order.
type PageSwap struct {
	Slot Slot
	At   int32
	Page kv.PageID
}

// MaskSet gives a mask its tokens, in place of those that it had. The backend keeps the
// mask until a batch drops it or sets it anew, so rows that may sample the same tokens
// share one upload. Bits are one form of a mask: token t is allowed if bit t%64 of
// Bits[t/64] is set.
type MaskSet struct {
	ID   MaskID
	Bits []uint64
}

// PageCopy copies the first Tokens slots of page Src to page Dst, in all layers.
type PageCopy struct {
	Src, Dst kv.PageID
	Tokens   int32
}

// Ticket is the claim on one submission. Its methods may be called from any goroutine.
type Ticket interface {
	// Done is closed on completion.
	Done() <-chan struct{}
	// Result is ErrPending before completion, then the result or the error that
	// ended the batch: ErrClosed or an *Error.
	Result() (*Result, error)
}

// Result is what a batch gave; it belongs to the caller.
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
	// Prompt is the log-probability of each token of the row but the sequence's
	// first, from the one before it. The row's own first token needs the logits of
	// the position before: NaN if the slot did not run that one itself.
	Prompt []float32
	// PromptTop is the most probable tokens in the places of Prompt, as many as
	// Row.PromptTop says, best first; none where Prompt is NaN. nil if that is 0.
	PromptTop [][]TokenLogprob
	Digest    uint64 // XXH3-64 over the raw logits, f32 little-endian, if asked
	Err       error  // this row only, ErrLogits, ErrNoToken or ErrMove; its pages must not be cached
}

// TokenLogprob is one entry of the top-k list, best first.
type TokenLogprob struct {
	Token   kv.Token
	Logprob float32
}

// StepStats is counted by the backend where it computes, not by who asked.
type StepStats struct {
	GivenTokens    int   // positions run whose token the batch gave
	DeferredTokens int   // positions run whose token was the slot's last sample
	KVTokensRead   int64 // KV entries attended to, summed over positions
	Samples        int
	CopiedPages    int
	Nanos          int64 // device time of the step; a scheduler may go by it
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
