package radixcache

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/coppice-llm/coppice/internal/radixcache/missratio"
)

// ErrConfig is wrapped by the errors of [Config.Validate] and [New].
var ErrConfig = errors.New("radixcache: invalid config")

// MaxPageTokens is the largest allowed [Config.PageTokens].
const MaxPageTokens = 1 << 15

// defaultTokens is the default size of pages and blocks. 16 is the page size
// of vLLM and the block size of Dynamo's defaults; smaller pages reuse more of
// a prompt, but the copied boundary page makes up for most of the difference.
const defaultTokens = 16

// Config is the shape of a [Cache]. The zero value works.
type Config struct {
	PageTokens  int    // tokens per page, 1 to MaxPageTokens; default 16
	BlockTokens int    // tokens per event block, a multiple of PageTokens; default the first multiple from 16 on
	Events      bool   // hash blocks and journal events; off costs nothing
	Policy      Policy // which leaf is evicted first; default LRU

	// SLRUHits is how many reuses a leaf needs to be kept beyond the rest, under SLRU.
	// Default 1.
	SLRUHits int

	// WholeLeaves makes Evict take leaves as a whole, and never joins what was
	// split: the tree then has the nodes that SGLang's would have. Otherwise the
	// last pages of a leaf go before the whole, and single-child runs are joined.
	WholeLeaves bool

	// TTL is how long what is not used is kept: Expire removes what is older.
	// 0 is for ever.
	TTL time.Duration

	// PinnedTokens is how many tokens PinPrefix may protect at a time. Default 0: none.
	PinnedTokens int

	// CurveSamples is how many blocks the live curve of [Cache.HitRates] tracks,
	// in some 130 bytes each, missratio.MinSamples to missratio.MaxSamples. See
	// [DefaultCurveSamples]. Default 0: no curve, which costs nothing.
	CurveSamples int
}

// WithDefaults returns a copy with the defaults in place of zeros.
func (c Config) WithDefaults() Config {
	if c.PageTokens == 0 {
		c.PageTokens = defaultTokens
	}
	if page := max(1, c.PageTokens); c.BlockTokens == 0 {
		c.BlockTokens = (defaultTokens + page - 1) / page * page
	}
	if c.SLRUHits == 0 {
		c.SLRUHits = 1
	}
	return c
}

// Validate reports all faults at once, each wrapping [ErrConfig] with field
// and value. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if p := c.PageTokens; p < 1 || p > MaxPageTokens {
		fault("PageTokens %d, want 1 to %d", p, MaxPageTokens)
	}
	if b := c.BlockTokens; b < 1 {
		fault("BlockTokens %d, want at least 1", b)
	} else if c.PageTokens > 0 && b%c.PageTokens != 0 {
		fault("BlockTokens %d, want a multiple of PageTokens %d", b, c.PageTokens)
	}
	if !c.Policy.known() {
		fault("Policy %d, want one of %v", uint8(c.Policy), Policies())
	}
	if h := c.SLRUHits; h < 1 || h > math.MaxInt32 {
		fault("SLRUHits %d, want at least 1", h)
	}
	if c.TTL < 0 {
		fault("TTL %v, want at least 0, which is for ever", c.TTL)
	}
	if c.PinnedTokens < 0 {
		fault("PinnedTokens %d, want at least 0", c.PinnedTokens)
	}
	if s := c.CurveSamples; s != 0 && (s < missratio.MinSamples || s > missratio.MaxSamples) {
		fault("CurveSamples %d, want %d to %d, or 0 for no curve", s, missratio.MinSamples, missratio.MaxSamples)
	}
	return errors.Join(faults...)
}

// Quota bounds what one namespace holds, behind public prefixes or on its own;
// a public prefix itself belongs to the namespace without salt. The zero Quota
// is none.
type Quota struct {
	MinPages int // Evict on behalf of others leaves the namespace so much
	MaxPages int // Insert and Extend free what is unpinned beyond; 0 is no limit
}
