package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Config sizes a backend. 0 anywhere means the default; the zero Config is a
// backend that costs a microsecond a step, in real time.
type Config struct {
	// Profile is the cost model; the zero Profile costs 1 µs a step.
	Profile Profile

	PageTokens  int // slots per page, a power of two up to 256; 16
	Pages       int // pages of the pool; what fits the profile's memory, 4096 without one
	MaxSlots    int // sequences with sampling state; 256
	MaxRows     int // per batch; 256
	MaxTokens   int // per batch; 8192
	MaxInflight int // batches that may be pending; 2
	// MaxPositions is the longest sequence in tokens; the profile's, 131072 without one.
	MaxPositions int
	Vocab        int // tokens are in [0, Vocab); 128, whatever the profile's model has

	Sanitize Mode
	// Logits makes real logits from the hash and draws from them with package
	// sampling: 100 times slower, and every promise of package engine holds.
	// Without, a token is a hash of the prefix and, unless greedy, of the seed and
	// the sample index; masks are honoured, as are biases of -Inf (forbid) and of
	// 100 and more (force). There are neither penalties nor log-probabilities:
	// Info.Capabilities says so, and batches that ask for them are refused.
	Logits bool
	// Clock is virtual time; nil is real time.
	Clock  *Clock
	Faults Faults
	// Seed changes the model's weights, so to say: all outputs.
	Seed uint64
}

// Faults break the device on purpose. They are called in order within Submit, once
// for each batch or row, and must not call the backend. Behind a batch that loses
// the device nothing runs, so only Slow is still asked. Each may be nil.
type Faults struct {
	// Row fails a row that would have been sound: its error is RowOut.Err, what it wrote is poison,
	// and the slot has no last sample.
	Row func(seq uint64, row int) error
	// Slow is a factor on the time of batch seq. One that is negative or NaN counts as 1.
	Slow func(seq uint64) float64
	// Device loses the device in batch seq: its ticket, those after it and all
	// later calls end with an *engine.Error that wraps the error.
	Device func(seq uint64) error
	// Move fails a move; it is asked when that begins.
	Move func(id engine.MoveID) error
	// Batch is like Device, by what the batch has in it.
	Batch func(b *engine.Batch) error
}

// WithDefaults is c with every zero field filled in, but the profile's.
func (c Config) WithDefaults() Config {
	set := func(field *int, v int) { *field = cmp.Or(*field, v) }
	set(&c.PageTokens, 16)
	if c.PageTokens > 0 {
		set(&c.Pages, kv.FloorPages(c.Profile.KVTokens(), c.PageTokens))
	}
	set(&c.Pages, 4096)
	set(&c.MaxSlots, 256)
	set(&c.MaxRows, 256)
	set(&c.MaxTokens, 8192)
	set(&c.MaxInflight, 2)
	set(&c.MaxPositions, c.Profile.Model.MaxPositions)
	set(&c.MaxPositions, 131072)
	set(&c.Vocab, 128)
	return c
}

// Validate reports every field of a config with defaults that no backend can
// have, by name and value.
func (c Config) Validate() error {
	errs := []error{c.Profile.Validate()}
	within := func(field string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("sim: %s is %d, want %d to %d", field, v, lo, hi))
		}
	}
	within("PageTokens", c.PageTokens, 1, 256)
	if c.PageTokens > 0 && c.PageTokens&(c.PageTokens-1) != 0 {
		errs = append(errs, fmt.Errorf("sim: PageTokens is %d, want a power of two", c.PageTokens))
	}
	within("Pages", c.Pages, 1, 1<<26)
	if int64(c.Pages)*int64(c.PageTokens) > maxTokens {
		errs = append(errs, fmt.Errorf("sim: Pages is %d of %d tokens, want at most %d tokens in all", c.Pages, c.PageTokens, maxTokens))
	}
	within("MaxSlots", c.MaxSlots, 1, 1<<20)
	within("MaxRows", c.MaxRows, 1, 1<<20)
	within("MaxTokens", c.MaxTokens, 1, 1<<24)
	within("MaxInflight", c.MaxInflight, 2, 1024)
	within("MaxPositions", c.MaxPositions, 1, math.MaxInt32)
	within("Vocab", c.Vocab, 2, 1<<24)
	within("Sanitize", int(c.Sanitize), int(Full), int(Off))
	return errors.Join(errs...)
}

// maxTokens bounds the pool, whose slots take 20 bytes each of this machine.
const maxTokens = 1 << 28
