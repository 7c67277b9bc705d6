package missratio

import (
	"errors"
	"fmt"
)

// ErrConfig is wrapped by the errors of [Config.Validate] and [New].
var ErrConfig = errors.New("missratio: invalid config")

// Limits of a [Config].
const (
	MaxBlockTokens = 256
	MinSamples     = 64
	MaxSamples     = 1 << 24
	MaxMaxTokens   = 1 << 40
)

const (
	// 32 tokens are 128 bytes, the longest input that XXH3 takes in its short,
	// quick form with a seed. Half a block, which is all that is guessed at a
	// fork, is half a percent of a request of 3,500 tokens.
	defaultBlockTokens = 32
	defaultMaxTokens   = 1 << 26
)

// DefaultSamples is the default of Config.Samples. Each sample costs some 130
// bytes with its share of the line of walks: two megabytes. How far off a curve
// of that size is stands in the tests.
const DefaultSamples = 16384

// Config is the shape of a [Curve]. The zero value works.
type Config struct {
	BlockTokens    int // granularity in tokens, 1 to MaxBlockTokens; default 32
	Samples        int // most blocks tracked at once, MinSamples to MaxSamples; default 16384
	MaxTokens      int // largest capacity that the curve speaks of; default 1<<26
	HalfLifeTokens int // what is this many looked-up tokens old counts half; 0: all counts alike
}

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	if c.BlockTokens == 0 {
		c.BlockTokens = defaultBlockTokens
	}
	if c.Samples == 0 {
		c.Samples = DefaultSamples
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = defaultMaxTokens
	}
	return c
}

// Validate reports all faults at once, each wrapping [ErrConfig] with field
// and value. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	if b := c.BlockTokens; b < 1 || b > MaxBlockTokens {
		faults = append(faults, fmt.Errorf("%w: BlockTokens %d, want 1 to %d", ErrConfig, b, MaxBlockTokens))
	}
	if s := c.Samples; s < MinSamples || s > MaxSamples {
		faults = append(faults, fmt.Errorf("%w: Samples %d, want %d to %d", ErrConfig, s, MinSamples, MaxSamples))
	}
	if m := c.MaxTokens; m < 1 || m > MaxMaxTokens {
		faults = append(faults, fmt.Errorf("%w: MaxTokens %d, want 1 to %d", ErrConfig, m, MaxMaxTokens))
	}
	if h := c.HalfLifeTokens; h < 0 {
		faults = append(faults, fmt.Errorf("%w: HalfLifeTokens %d, want 0 or more", ErrConfig, h))
	}
	return errors.Join(faults...)
}
