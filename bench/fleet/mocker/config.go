package mocker

import (
	"errors"
	"fmt"
	"math"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/enum"
)

// ErrConfig is wrapped by the errors of [Config.Validate] and [New].
var ErrConfig = errors.New("mocker: invalid config")

// NoWatermark is the value of [Config.Watermark] for a watermark of 0, since 0 means the
// default.
const NoWatermark = -1

// Limits of a Config.
const (
	MaxBlocks      = 1 << 26
	MaxBlockTokens = 1 << 16
	MaxRunning     = 1 << 16 // most MaxSeqs
	MaxTokens      = 1 << 24 // of a request's prompt and output together, and most MaxBatchedTokens
	MaxQueue       = 1 << 24 // most MaxWaiting
)

// Admission selects which blocks of a prompt count as needed when it is admitted.
type Admission uint8

const (
	// CountCached does not count blocks that running requests hold: a prompt that shares
	// its prefix with them needs that much less room.
	CountCached Admission = iota
	// CountWhole counts all blocks of the prompt, as upstream does. Requests that share
	// a long prefix then wait although there is room for them.
	CountWhole
)

var admissions = enum.New[Admission]("mocker", "admission", "cached", "whole")

func (a Admission) String() string { return admissions.Name(a) }

// UnmarshalText accepts the names that String returns.
func (a *Admission) UnmarshalText(text []byte) error { return admissions.Read(a, text) }

// Preemption selects the sequence to preempt when a decoding sequence gets no block.
type Preemption uint8

const (
	// Newest preempts the sequence admitted last, as vLLM does. It is the default: the
	// newest sequence loses least, requests end roughly in order of arrival, and the
	// oldest one always makes progress.
	Newest Preemption = iota
	// Oldest preempts the first admitted of the decoding sequences, as upstream does.
	Oldest
)

var preemptions = enum.New[Preemption]("mocker", "preemption", "newest", "oldest")

func (p Preemption) String() string { return preemptions.Name(p) }

// UnmarshalText accepts the names that String returns.
func (p *Preemption) UnmarshalText(text []byte) error { return preemptions.Read(p, text) }

// Config sizes a worker. The zero value works; the defaults are those of Dynamo's mocker
// of February 2026.
type Config struct {
	Blocks           int     `default:"16384" min:"1" max:"1<<26"` // blocks of KV on the device. Default 16384
	BlockTokens      int     `default:"64" min:"2" max:"1<<16"`    // tokens in a block, at least 2. Default 64
	MaxSeqs          int     `default:"256" min:"1" max:"1<<16"`   // most running requests. Default 256
	MaxBatchedTokens int     `default:"8192" min:"1" max:"1<<24"`  // most tokens in a pass, at least MaxSeqs. Default 8192
	Watermark        float64 `default:"0.01"`                      // share of the blocks that admission keeps free. Default 0.01; NoWatermark for 0
	MaxWaiting       int     `default:"65536" min:"1" max:"1<<24"` // most waiting requests. Default 65536

	NoPrefixCaching  bool // no block is shared or announced
	NoChunkedPrefill bool // a prompt is computed in one pass; a prompt above MaxBatchedTokens is the only one of its pass

	Admission  Admission  // default CountCached
	Preemption Preemption // default Newest
	Timing     Timing     // default DefaultPolynomial()

	// Seed determines the hashes of output blocks if Request.Output is not given: equal
	// seeds and request IDs give equal local hashes.
	Seed uint64
}

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.Timing == nil {
		c.Timing = DefaultPolynomial()
	}
	return c
}

// Validate reports all faults at once, by field and value, each wrapping
// ErrConfig. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{bounds.CheckAs(ErrConfig, c)}
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if c.MaxBatchedTokens < c.MaxSeqs {
		bad("MaxBatchedTokens is %d, want at least MaxSeqs, %d: each that decodes takes a token", c.MaxBatchedTokens, c.MaxSeqs)
	}
	if c.Watermark != NoWatermark && !(c.Watermark >= 0 && c.Watermark < 1) {
		bad("Watermark is %v, want 0 to below 1, or NoWatermark", c.Watermark)
	}
	if !admissions.Has(c.Admission) {
		bad("Admission is %v, want %v", c.Admission, admissions.Names())
	}
	if !preemptions.Has(c.Preemption) {
		bad("Preemption is %v, want %v", c.Preemption, preemptions.Names())
	}
	if err := c.Timing.Validate(); err != nil {
		bad("Timing: %w", err)
	}
	return errors.Join(errs...)
}

// admitBlocks returns the most blocks that may be active after an admission.
func (c *Config) admitBlocks() int {
	if c.Watermark == NoWatermark {
		return c.Blocks
	}
	return int(math.Floor((1 - c.Watermark) * float64(c.Blocks)))
}
