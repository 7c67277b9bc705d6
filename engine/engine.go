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
	PageTokens   int // tokens per page, a power of two from 1 to 256
	NumPages     int // pages in the pool, ids [0, NumPages)
	PageBytes    int // one page over all layers
	KVType       kv.DType
	HostBytes    int64 // memory of this machine that the backend has mapped outside the Go heap: weights, pool

	MaxSlots    int // slots are in [0, MaxSlots)
	MaxRows     int // rows per batch
	MaxTokens   int // tokens per batch, summed over its rows
	MaxInflight int // batches that may be submitted and not completed, at least 2
	// MaxMasks is the number of masks that the backend keeps. It is 0 if the backend supports
	// none, else at least MaxRows·MaxInflight, so that each row in flight can have its own mask.
	MaxMasks int
	// MaxDrafts is the largest length of Row.Drafts; 0: the backend takes none.
	MaxDrafts int
	// HiddenSize is the length of RowOut.Hidden, the width of the model; 0: the backend gives no
	// hidden states.
	HiddenSize int

	Cost StepCost // estimate of a step's duration

	Deterministic bool // keeps the last promise of the package comment: equal prefixes give equal logits

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

// CheckSampling returns an error, to be shown to the sender of a request, if p asks for something
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

// Batch is the work of one step. The Seq of each batch that a backend gets is larger than that of
// the batch before.
type Batch struct {
	Seq    uint64
	After  []MoveID // moves that must have ended before the batch runs, see Mover; an unknown number counts as ended
	Binds  []SlotBind
	Swaps  []PageSwap
	Copies []PageCopy
	Drops  []MaskID  // masks that the backend forgets
	Masks  []MaskSet // after Drops: one batch may drop a mask and set it again
	Rows   []Row
}

// Row runs some tokens of one sequence: a prefill chunk or a decode step. Its own tokens are Tokens,
// or the one of a Deferred row; Drafts may follow them.
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
	// Drafts are guesses at the d tokens that follow the row's own n, those of a Deferred row
	// included; only a row that samples has some, at most Info.MaxDrafts. The row runs all n+d tokens
	// at [Start, Start+n+d) and verifies the guesses: it draws sample i, from 0, after its own
	// tokens and the first i guesses, with the random numbers of SampleIndex+i and with penalties that
	// count these guesses as output. The first guesses that equal their samples are confirmed:
	// RowOut.Confirmed is their number c, and RowOut.Token is sample c. So a row with drafts gives
	// 1 to d+1 tokens, the same ones as c+1 rows of one sample each, and leaves the slot in the same
	// state. The sequence then has KV for [Start, Start+n+c), and its next row starts at Start+n+c.
	// Until the caller has the result of the batch, it submits no other row of the slot, unless it binds
	// the slot again, and none that reads the KV of the guesses.
	Drafts []kv.Token
	// DraftMasks are the masks of the samples after the first: DraftMasks[i] is that of sample i+1,
	// the one after Drafts[i], as Mask is that of sample 0. len is d, or 0: all tokens are allowed.
	DraftMasks []MaskID
	// Pages are appended to the slot's table, which then has at least
	// CeilPages(Start+n+d) pages by ascending position.
	Pages []kv.PageID
	// Sample one token after the last of the row's own tokens; false for all chunks but the last.
	Sample bool
	// SampleIndex is the index of that token in the request's output, the
	// counter of the random generator.
	SampleIndex int32
	// Mask names a mask that this batch or an earlier one has set; 0 allows all tokens. If the
	// mask and the slot's biases allow no token, the row fails with ErrNoToken.
	Mask MaskID
	// Digest asks for RowOut.Digest of a row that samples.
	Digest bool
	// PromptLogprobs asks for RowOut.Prompt. PromptTop, from 0 to MaxTopLogprobs, is the number of
	// entries that RowOut.PromptTop has for each token.
	PromptLogprobs bool
	PromptTop      int32
	// Hidden asks for RowOut.Hidden. Such a row has no drafts.
	Hidden Hidden
}

// Len returns the number of tokens that the row runs: its own and its drafts.
func (r *Row) Len() int { return r.Own() + len(r.Drafts) }

// Own returns the number of tokens that the row runs without its drafts.
func (r *Row) Own() int {
	if r.Deferred {
		return 1
	}
	return len(r.Tokens)
}

// MaskAt returns the mask of sample i of a row with drafts; sample 0 is that of any row.
func (r *Row) MaskAt(i int) MaskID {
	switch {
	case i == 0:
		return r.Mask
	case len(r.DraftMasks) == 0:
		return 0
	}
	return r.DraftMasks[i-1]
}

// SlotBind gives a slot to a sequence and resets the slot's state. Pages are the first pages of
// the slot's table; Row.Pages append more. Prompt and Output are the tokens that penalties count;
// they are needed only if Sampling has a penalty.
type SlotBind struct {
	Slot     Slot
	Sampling SamplingParams
	Pages    []kv.PageID
	Prompt   []kv.Token
	Output   []kv.Token
}

// PageSwap replaces entry At of a slot's page table by Page. Usually both pages hold the same KV:
// of two pages that sequences have filled with equal tokens, the scheduler keeps one. The backend
// updates the tables before the batch runs: first Binds, then Row.Pages, then Swaps.
type PageSwap struct {
	Slot Slot
	At   int32
	Page kv.PageID
}

// MaskSet sets the bits of mask ID and replaces any earlier bits. The backend keeps the mask until a
// batch drops it or sets it again, so rows that may sample the same tokens share one upload. Token
// t is allowed if bit t%64 of Bits[t/64] is set: the bits of a vocabulary of 32,768 tokens take 4
// KiB.
type MaskSet struct {
	ID   MaskID
	Bits []uint64
}

// PageCopy copies the KV of the first Tokens tokens of page Src to page Dst, in all layers.
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
	Out   []RowOut // one per row that samples, fails or asks for a digest or log-probabilities; ascending by Row
	Stats StepStats
}

// RowOut is the outcome of row Row.
type RowOut struct {
	Row     int
	Token   kv.Token       // if the row sampled
	Logprob float32        // natural logarithm of Token's probability under the raw logits, if asked
	Top     []TokenLogprob // the SamplingParams.TopLogprobs most probable tokens
	// Prompt has the log-probability of each token of the row, given the tokens before it. The
	// sequence's first token has no entry. The entry of the row's first token needs the logits of
	// the position before: it is NaN if the slot did not run that position itself.
	Prompt []float32
	// PromptTop has, for each entry of Prompt, the Row.PromptTop most probable tokens, best first;
	// nil for an entry that is NaN. PromptTop is nil if Row.PromptTop is 0.
	PromptTop [][]TokenLogprob
	Digest    uint64 // XXH3-64 over the raw logits, f32 little-endian, if asked
	// Hidden has the state, or the sum of states, that Row.Hidden asks for; len is Info.HiddenSize. All values are finite.
	Hidden []float32
	// Confirmed is the number of leading Row.Drafts that the samples equal. Token, Logprob, Top and
	// Digest are those of the sample after them. It is 0 if Err is set: a row that fails gives no token.
	Confirmed int32
	// Drafts has what the row asks for besides tokens, for each of the Confirmed drafts; nil if the
	// row asks for neither a digest nor log-probabilities.
	Drafts []DraftOut
	// Err wraps ErrLogits, ErrNoToken, ErrMove or ErrMemory. It fails this row only, whose KV must not be cached.
	// After a guess that was refused nothing is sampled, so no error there fails the row.
	Err error
}

// DraftOut has the Logprob, Top and Digest of a confirmed draft, as RowOut has them of its Token.
type DraftOut struct {
	Logprob float32
	Top     []TokenLogprob
	Digest  uint64
}

// TokenLogprob is a token and the natural logarithm of its probability.
type TokenLogprob struct {
	Token   kv.Token
	Logprob float32
}

// StepStats are counted by the backend where it computes, so that tests can compare them with the
// scheduler's own counts.
type StepStats struct {
	GivenTokens    int   // positions run whose token was in the batch, drafts included
	DeferredTokens int   // positions run whose token was the slot's last sample
	KVTokensRead   int64 // KV entries attended to, summed over positions
	Samples        int   // tokens of the outputs: one a row that samples, and its confirmed drafts
	Drafted        int   // positions of drafts, counted in GivenTokens too
	Confirmed      int   // drafts confirmed, counted in Samples too
	CopiedPages    int
	GraphFailures  int   // 1: the kernels were launched one by one, because the driver made no graph of them
	MemoryFailures int   // 1: the device had too little memory for the batch, and all its rows failed
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

// ErrMemory is wrapped by RowOut.Err of all rows of a batch for which the device has too little memory. What else
// the batch asks for (binds, swaps, copies, masks) takes effect, and later batches run.
var ErrMemory = errors.New("engine: the device has too little memory for the step")

// Error reports that the device of a backend has failed, in operation Op. Every later call fails
// with the same error, and all KV is lost.
type Error struct {
	Backend string
	Op      string
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("engine: %s failed in %s: %v", e.Backend, e.Op, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
