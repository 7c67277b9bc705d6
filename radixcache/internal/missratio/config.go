package missratio

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// errConfig is wrapped by the errors of [Config.Validate] and [New].
var errConfig = errors.New("missratio: invalid config")

// Limits of a [Config].
const (
	MinSamples = 64
	MaxSamples = 1 << 24
)

const (
	// The head of a request is its first headBlocks*BlockTokens tokens, 480 by default.
	// Blocks in the head are half as long or less, but not shorter than headTokens.
	// If many requests fork at the same place, as after a common prompt, the estimate of
	// the fork is wrong in the same way each time. With short blocks in the head, that
	// error is at most two percent of a request: 8 tokens of 480, with pages of 16.
	headOctaves = 4
	headBlocks  = 1<<headOctaves - 1
	headTokens  = 16

	// Blocks of 32 tokens are 128 bytes, the longest input that XXH3 takes in one
	// of its short, quick forms. A wider page is a block by itself.
	quickTokens = 32
)

// DefaultSamples is the default of Config.Samples. It takes 2 MB: some 130 bytes for
// each sample, with its share of the line of walks. The tests state the errors of a
// curve with that many samples.
const DefaultSamples = 16384

// Config is the shape of a [Curve]. The zero value works.
type Config struct {
	PageTokens     int `default:"1" min:"1" max:"1<<15"`      // tokens per page of the cache, which matches whole pages only, 1 to 32768; default 1
	BlockTokens    int `min:"1" max:"1<<15"`                  // tokens per tracked block, a multiple of PageTokens up to 32768; default mostly 32
	Samples        int `default:"16384" min:"64" max:"1<<24"` // largest number of blocks tracked at once, MinSamples to MaxSamples; default 16384
	MaxTokens      int `default:"1<<26" min:"1" max:"1<<40"`  // largest capacity in tokens that the curve covers; default 1<<26
	HalfLifeTokens int `min:"0"`                              // a request counts half after this many further tokens; 0: all count alike
}

// WithDefaults returns a copy with zero fields replaced by their defaults. BlockTokens
// becomes 32 for pages of 1, 2, 4, 8, 16 and 32 tokens, and one page for longer pages.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if c.BlockTokens == 0 && c.PageTokens > 0 {
		if c.BlockTokens = kv.CeilPages(headTokens, c.PageTokens) * c.PageTokens; c.BlockTokens < quickTokens {
			c.BlockTokens *= 2
		}
	}
	return c
}

// headBlock returns the length in tokens of the blocks of the head. It divides
// BlockTokens.
func (c Config) headBlock() int {
	head := kv.CeilPages(headTokens, c.PageTokens) * c.PageTokens
	if c.BlockTokens%head != 0 {
		return c.BlockTokens
	}
	return head
}

// Validate returns an error that lists all fields with invalid values and wraps
// [errConfig], or nil. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	err := bounds.CheckAs(errConfig, c)
	if c.PageTokens > 0 && c.BlockTokens%c.PageTokens != 0 {
		err = errors.Join(err, fmt.Errorf("%w: BlockTokens is %d, want a multiple of PageTokens, %d", errConfig, c.BlockTokens, c.PageTokens))
	}
	return err
}
