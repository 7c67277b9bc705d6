package sim

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Config configures a backend. Zero fields have defaults, which the comments of the fields name;
// the zero Config is a backend with steps of a microsecond, in real time.
type Config struct {
	// Profile is the cost model; the zero Profile costs 1 µs a step.
	Profile Profile

	PageTokens  int `default:"16" min:"1" max:"256" pow2:""` // tokens per page; default 16
	Pages       int `min:"1" max:"1<<26"`                    // pages of the pool; default: what fits the profile's memory, 4096 without a profile
	MaxSlots    int `default:"256" min:"1" max:"1<<20"`      // slots are in [0, MaxSlots); default 256
	MaxRows     int `default:"256" min:"1" max:"1<<20"`      // rows per batch; default 256
	MaxTokens   int `default:"8192" min:"1" max:"1<<24"`     // tokens per batch; default 8192
	MaxInflight int `default:"2" min:"2" max:"1024"`         // batches that may be pending; default 2
	MaxDrafts   int `default:"64" min:"-1" max:"1<<20"`      // drafts of a row; default 64, below 0: none
	// MaxPositions is the longest sequence in tokens; default: the profile's, 131072 without a
	// profile.
	MaxPositions int `min:"1" max:"2147483647"`
	Vocab        int `default:"128" min:"2" max:"1<<24"` // tokens are in [0, Vocab); default 128, even if the profile's model has more

	Sanitize Mode // checks of reads and writes; default Full
	// Logits makes the backend compute real logits from the hash and sample from them with package
	// sampling: 100 times slower, but every promise of package engine holds. Without Logits a
	// token is a hash of the prefix and, unless greedy, of the seed and the sample index. Masks
	// work, and so do biases of -Inf (forbid) and of 100 or more (force). Penalties and
	// log-probabilities are missing in Info.Capabilities, and batches that need them are refused.
	Logits bool
	// Clock is the virtual clock; nil means real time.
	Clock  *Clock
	Faults Faults
	// Seed stands for the model's weights: another seed gives other outputs.
	Seed uint64
}

// Faults are functions that break the simulated device on purpose. Submit calls them in the
// order of batches, once for each batch or row. They must not call the backend. A function may
// be nil. After a batch that loses the device no batch runs, and Submit calls only Slow, because
// a lost batch takes time too.
type Faults struct {
	// Row is called for each row that would succeed, with the batch's Seq and the row's index. An
	// error fails the row: it becomes RowOut.Err, the KV that the row wrote is marked as unusable,
	// and its slot has no last sample.
	Row func(seq uint64, row int) error
	// Slow returns a factor for the duration of the batch with Seq seq. A negative factor or NaN
	// counts as 1.
	Slow func(seq uint64) float64
	// Device is called for each batch. An error loses the device in the batch with Seq seq: its
	// ticket, the tickets after it and all later calls end with an *engine.Error that wraps the
	// error.
	Device func(seq uint64) error
	// Move is called when a move begins. An error fails the move.
	Move func(id engine.MoveID) error
	// Batch is like Device, but gets the batch.
	Batch func(b *engine.Batch) error
}

// WithDefaults returns c with defaults in its zero fields. It leaves Profile as it is.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.Pages == 0 && c.PageTokens > 0 {
		c.Pages = kv.FloorPages(c.Profile.KVTokens(), c.PageTokens)
	}
	c.Pages = cmp.Or(c.Pages, 4096)
	c.MaxPositions = cmp.Or(c.MaxPositions, c.Profile.Model.MaxPositions, 131072)
	return c
}

// Validate returns an error that names every invalid field of c with its value, or nil. c must
// have its defaults filled in.
func (c Config) Validate() error {
	errs := []error{c.Profile.Validate(), bounds.Check("sim", c)}
	if int64(c.Pages)*int64(c.PageTokens) > maxTokens {
		errs = append(errs, fmt.Errorf("sim: Pages is %d of %d tokens, want at most %d tokens in all", c.Pages, c.PageTokens, maxTokens))
	}
	if !modeNames.Has(c.Sanitize) {
		errs = append(errs, fmt.Errorf("sim: Sanitize is %v, want %s", c.Sanitize, modeNames.Names()))
	}
	return errors.Join(errs...)
}

// maxTokens bounds the pool; each slot takes 20 bytes of this machine's memory.
const maxTokens = 1 << 28

// Mode says how much a backend checks of the reads and writes of KV. In all modes the outputs
// depend on the KV that rows read.
type Mode uint8

// The modes.
const (
	// Full checks every KV slot that a row reads: its position, and the chain of hashes from the
	// first token on. Cost: a few nanoseconds per token of context. It also checks that batches and
	// the host memory of moves stay as they are while they are pending.
	Full Mode = iota
	// Boundary checks only the last KV slot that a row reads, if the row continues where the last
	// row of its engine slot ended. For any other row, such as the first one on cached pages, it
	// checks the first and the last KV slot of each page. Cost O(1) for a decode row.
	Boundary
	// Off checks nothing: it takes the hash in the last KV slot before Start as right.
	Off
)

var modeNames = enum.New[Mode]("sim", "mode", "full", "boundary", "off")

func (m Mode) String() string { return modeNames.Name(m) }

// UnmarshalText reads "full", "boundary" or "off".
func (m *Mode) UnmarshalText(text []byte) error { return modeNames.Read(m, text) }

// ErrCorrupt is wrapped by the *engine.Error that ends the device when a batch reads or
// overwrites the wrong KV, or is changed while it is pending. That is a bug of the scheduler, never
// of its caller.
var ErrCorrupt = errors.New("sim: the KV cache is corrupt")
