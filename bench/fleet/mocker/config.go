package mocker

import (
	"errors"
	"fmt"
	"math"
)

// ErrConfig is wrapped by the errors of [Config.Validate] and [New].
var ErrConfig = errors.New("mocker: invalid config")

// NoWatermark is a [Config.Watermark] of 0.
const NoWatermark = -1

// Limits of a Config.
const (
	MaxBlocks      = 1 << 26
	MaxBlockTokens = 1 << 16
	MaxRunning     = 1 << 16 // most MaxSeqs
	MaxTokens      = 1 << 24 // of a request's prompt and output together, and most MaxBatchedTokens
	MaxQueue       = 1 << 24 // most MaxWaiting
)

// Admission says what the blocks of a prompt count when it is admitted.
type Admission uint8

const (
	// CountCached lets blocks that running requests hold already count nothing: a
	// prompt that shares its prefix with them takes that much less room.
	CountCached Admission = iota
	// CountWhole counts all blocks of the prompt, as upstream does: requests that
	// share a long prefix wait though there is room for them.
	CountWhole
)

var admissionNames = [...]string{"cached", "whole"}

func (a Admission) String() string { return nameOf(admissionNames[:], int(a)) }

// UnmarshalText takes the names that String gives.
func (a *Admission) UnmarshalText(text []byte) error {
	i, err := parseName("admission", admissionNames[:], text)
	if err == nil {
		*a = Admission(i)
	}
	return err
}

// Preemption says who gives way when a decoding sequence finds no block.
type Preemption uint8

const (
	// Newest preempts who was admitted last, as vLLM does. It is the default: the
	// newest has least to lose, requests end in the order in which they came, and
	// the oldest always goes on.
	Newest Preemption = iota
	// Oldest preempts who has decoded longest, as upstream does.
	Oldest
)

var preemptionNames = [...]string{"newest", "oldest"}

func (p Preemption) String() string { return nameOf(preemptionNames[:], int(p)) }

// UnmarshalText takes the names that String gives.
func (p *Preemption) UnmarshalText(text []byte) error {
	i, err := parseName("preemption", preemptionNames[:], text)
	if err == nil {
		*p = Preemption(i)
	}
	return err
}

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("invalid(%d)", i)
}

func parseName(what string, names []string, text []byte) (int, error) {
	for i, name := range names {
		if name == string(text) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("mocker: %s %q, want one of %q", what, text, names)
}

// Config says what the worker is like. The zero value works; the defaults are
// those of Dynamo's mocker of February 2026.
type Config struct {
	Blocks           int     // of KV on the device. Default 16384
	BlockTokens      int     // tokens in a block, at least 2. Default 64
	MaxSeqs          int     // requests that run at a time. Default 256
	MaxBatchedTokens int     // tokens of a pass, at least MaxSeqs. Default 8192
	Watermark        float64 // part of the blocks that admission leaves. Default 0.01; NoWatermark: 0
	MaxWaiting       int     // requests that wait. Default 65536

	NoPrefixCaching  bool // nothing is shared or announced
	NoChunkedPrefill bool // a prompt is computed in one pass; one above MaxBatchedTokens is the only prompt of its pass

	Admission  Admission  // default CountCached
	Preemption Preemption // default Newest
	Timing     Timing     // default DefaultPolynomial()

	// Seed makes the blocks of outputs whose tokens are not given: equal seeds and
	// request IDs after equal prompts give equal blocks.
	Seed uint64
}

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.Blocks, 16384)
	set(&c.BlockTokens, 64)
	set(&c.MaxSeqs, 256)
	set(&c.MaxBatchedTokens, 8192)
	set(&c.MaxWaiting, 65536)
	if c.Watermark == 0 {
		c.Watermark = 0.01
	}
	if c.Timing == nil {
		c.Timing = DefaultPolynomial()
	}
	return c
}

// Validate reports all faults at once, by field and value, each wrapping
// ErrConfig. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(field string, value, want any) {
		errs = append(errs, fmt.Errorf("%w: %s is %v, want %v", ErrConfig, field, value, want))
	}
	for _, f := range []struct {
		name               string
		value, least, most int
	}{
		{"Blocks", c.Blocks, 1, MaxBlocks},
		{"BlockTokens", c.BlockTokens, 2, MaxBlockTokens},
		{"MaxSeqs", c.MaxSeqs, 1, MaxRunning},
		{"MaxBatchedTokens", c.MaxBatchedTokens, 1, MaxTokens},
		{"MaxWaiting", c.MaxWaiting, 1, MaxQueue},
	} {
		if f.value < f.least || f.value > f.most {
			bad(f.name, f.value, fmt.Sprintf("%d to %d", f.least, f.most))
		}
	}
	if c.MaxBatchedTokens < c.MaxSeqs {
		bad("MaxBatchedTokens", c.MaxBatchedTokens, fmt.Sprintf("at least MaxSeqs, %d: each that decodes takes a token", c.MaxSeqs))
	}
	if c.Watermark != NoWatermark && !(c.Watermark >= 0 && c.Watermark < 1) {
		bad("Watermark", c.Watermark, "0 to below 1, or NoWatermark")
	}
	if int(c.Admission) >= len(admissionNames) {
		bad("Admission", c.Admission, fmt.Sprint("one of ", admissionNames))
	}
	if int(c.Preemption) >= len(preemptionNames) {
		bad("Preemption", c.Preemption, fmt.Sprint("one of ", preemptionNames))
	}
	if err := c.Timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: Timing: %w", ErrConfig, err))
	}
	return errors.Join(errs...)
}

// admitBlocks is how many blocks may be active after an admission.
func (c *Config) admitBlocks() int {
	if c.Watermark == NoWatermark {
		return c.Blocks
	}
	return int(math.Floor((1 - c.Watermark) * float64(c.Blocks)))
}
