package radixcache

import (
	"errors"
	"fmt"
)

// ErrConfig is wrapped by the errors of [Config.Validate] and [New].
var ErrConfig = errors.New("radixcache: invalid config")

// MaxPageTokens is the largest allowed [Config.PageTokens].
const MaxPageTokens = 256

// defaultTokens is the default size of pages and blocks. 16 is the page size
// of vLLM and the block size of Dynamo's defaults; smaller pages reuse more of
// a prompt, but the copied boundary page makes up for most of the difference.
const defaultTokens = 16

// Config is the shape of a [Cache]. The zero value works.
type Config struct {
	PageTokens  int  // tokens per page, a power of two in [1, MaxPageTokens]; default 16
	BlockTokens int  // tokens per event block, a multiple of PageTokens; default max(16, PageTokens)
	Events      bool // hash blocks and journal events; off costs nothing
}

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	if c.PageTokens == 0 {
		c.PageTokens = defaultTokens
	}
	if c.BlockTokens == 0 {
		c.BlockTokens = max(defaultTokens, c.PageTokens)
	}
	return c
}

// Validate reports all faults at once, each wrapping [ErrConfig] with field
// and value. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	if p := c.PageTokens; p < 1 || p > MaxPageTokens || p&(p-1) != 0 {
		faults = append(faults, fmt.Errorf("%w: PageTokens %d, want a power of two from 1 to %d", ErrConfig, p, MaxPageTokens))
	}
	if b := c.BlockTokens; b < 1 {
		faults = append(faults, fmt.Errorf("%w: BlockTokens %d, want at least 1", ErrConfig, b))
	} else if c.PageTokens > 0 && b%c.PageTokens != 0 {
		faults = append(faults, fmt.Errorf("%w: BlockTokens %d, want a multiple of PageTokens %d", ErrConfig, b, c.PageTokens))
	}
	return errors.Join(faults...)
}
