package missratio

import (
	"cmp"

	"github.com/coppice-llm/coppice/kv"
)

// Limits of the number of samples.
const (
	MinSamples = 64
	MaxSamples = 1 << 24
)

const (
	// The head of a request is its first headBlocks*blockTokens tokens, 480 by default.
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

// DefaultSamples is a number of samples that suits most loads. It takes 2 MB: some 130 bytes
// for each sample, with its share of the line of walks. The tests state the errors of a
// curve with that many samples.
const DefaultSamples = 16384

// config is the shape of a [Curve]. All but samples and pageTokens are the defaults, except in tests.
type config struct {
	pageTokens  int // tokens per page of the cache, which matches whole pages only; default 1
	blockTokens int // tokens per tracked block, a multiple of pageTokens; default mostly 32
	samples     int // largest number of blocks tracked at once; default DefaultSamples
	maxTokens   int // largest capacity in tokens that the curve covers; default 1<<26
}

// withDefaults returns a copy with zero fields replaced by their defaults. blockTokens
// becomes 32 for pages of 1, 2, 4, 8, 16 and 32 tokens, and one page for longer pages.
func (c config) withDefaults() config {
	c.pageTokens = cmp.Or(c.pageTokens, 1)
	c.samples, c.maxTokens = cmp.Or(c.samples, DefaultSamples), cmp.Or(c.maxTokens, 1<<26)
	if c.blockTokens == 0 {
		if c.blockTokens = kv.CeilPages(headTokens, c.pageTokens) * c.pageTokens; c.blockTokens < quickTokens {
			c.blockTokens *= 2
		}
	}
	return c
}

// headBlock returns the length in tokens of the blocks of the head. It divides
// blockTokens.
func (c config) headBlock() int {
	head := kv.CeilPages(headTokens, c.pageTokens) * c.pageTokens
	if c.blockTokens%head != 0 {
		return c.blockTokens
	}
	return head
}
