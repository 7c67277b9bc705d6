package sim

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// Config configures a backend. Zero fields have defaults; the zero Config is a backend
// with steps of a microsecond, in real time.
type Config struct {
	// Profile is the cost model; the zero Profile costs 1 µs a step.
	Profile Profile

	PageTokens  int `default:"16" min:"1" max:"256" pow2:""` // slots per page; 16
	Pages       int `min:"1" max:"1<<26"`                    // pages of the pool; what fits the profile's memory, 4096 without one
	MaxSlots    int `default:"256" min:"1" max:"1<<20"`      // sequences with sampling state; 256
	MaxRows     int `default:"256" min:"1" max:"1<<20"`      // per batch; 256
	MaxTokens   int `default:"8192" min:"1" max:"1<<24"`     // per batch; 8192
	MaxInflight int `default:"2" min:"2" max:"1024"`         // batches that may be pending; 2
	// MaxPositions is the longest sequence in tokens; the profile's, 131072 without one.
	MaxPositions int `min:"1" max:"2147483647"`
	Vocab        int `default:"128" min:"2" max:"1<<24"` // tokens are in [0, Vocab); 128, whatever the profile's model has

	Sanitize Mode
	// Logits makes real logits from the hash and samples from them with package
	// sampling: 100 times slower, but every promise of package engine holds.
	// Without Logits a token is a hash of the prefix and, unless greedy, of the seed and
	// the sample index. Masks hold, and so do biases of -Inf (forbid) and of 100 or more
	// (force). Penalties and log-probabilities are missing in Info.Capabilities, and
	// batches that need them are refused.
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
	// Row fails a sound row: its error becomes RowOut.Err, the KV that the row wrote is
	// poisoned, and its slot has no last sample.
	Row func(seq uint64, row int) error
	// Slow returns a factor for the time of batch seq. A negative factor or NaN counts as 1.
	Slow func(seq uint64) float64
	// Device loses the device in batch seq: its ticket, those after it and all
	// later calls end with an *engine.Error that wraps the error.
	Device func(seq uint64) error
	// Move fails a move; it is called when the move begins.
	Move func(id engine.MoveID) error
	// Batch is like Device, but gets the batch.
	Batch func(b *engine.Batch) error
}

// WithDefaults returns c with defaults in its zero fields, except those of the profile.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.Pages == 0 && c.PageTokens > 0 {
		c.Pages = kv.FloorPages(c.Profile.KVTokens(), c.PageTokens)
	}
	c.Pages = cmp.Or(c.Pages, 4096)
	c.MaxPositions = cmp.Or(c.MaxPositions, c.Profile.Model.MaxPositions, 131072)
	return c
}

// Validate reports every invalid field of a config with defaults, by name and value.
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
