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

// MaxPageTokens is the largest allowed [Config.PageTokens]. A number of tokens
// within a page then fits the 16 bits that a node has for it (node.skip).
const MaxPageTokens = 1 << 15

// defaultTokens is the default size of pages and blocks. 16 is the page size
// of vLLM and the block size of Dynamo's defaults. Smaller pages reuse more of
// a prompt, but the copied boundary page (Partial) makes up for most of the
// difference.
const defaultTokens = 16

// Config is the shape of a [Cache]. The zero value works.
type Config struct {
	// PageTokens is the number of tokens in a page, 1 to MaxPageTokens. Default 16.
	PageTokens int
	// BlockTokens is the number of tokens in an event's block, a multiple of
	// PageTokens. Default: the first multiple that is 16 or more.
	BlockTokens int
	// Events turns on block hashes and the event journal, at 0.8 ns per published
	// token. Off, they cost nothing.
	Events bool
	// Policy decides which leaf is evicted first. Default LRU.
	Policy Policy

	// SLRUHits is the number of reuses after which SLRU keeps a leaf longer than
	// those with fewer. Default 1.
	SLRUHits int

	// WholeLeaves makes Evict remove whole leaves, and keeps split nodes apart:
	// the tree then has the nodes that SGLang's would have. By default Evict
	// removes a leaf's last pages first, and single-child runs are joined.
	WholeLeaves bool

	// TTL is how long an unused node is kept: Expire removes older ones, unless
	// they are pinned. It is exact to TTL/64: see ages. 0 sets no limit.
	TTL time.Duration

	// PinnedTokens is the budget of PinPrefix: the tokens that it may protect at
	// a time, summed over the pinned prefixes. Default 0: none.
	PinnedTokens int

	// CurveSamples is the number of blocks that the live curve of
	// [Cache.HitRates] tracks, missratio.MinSamples to missratio.MaxSamples, in
	// some 130 bytes each: [DefaultCurveSamples] needs 2 MB. Default 0: no
	// curve, which costs nothing.
	CurveSamples int
}

// WithDefaults returns a copy with zeros replaced by the defaults. With
// PageTokens 24, for example, BlockTokens becomes 24; with 4 it becomes 16.
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

// Quota bounds the pages that one namespace holds, in its own tree and in its
// private spaces after public prefixes. A public prefix itself belongs to the
// namespace without salt. The zero Quota means no quota.
type Quota struct {
	// MinPages is a lower bound against evictions for other namespaces: Evict,
	// and EvictFor another namespace, leave this many pages. EvictAny does not.
	MinPages int
	// MaxPages is an upper bound at Insert and Extend: they free unpinned pages
	// beyond it. 0 sets no limit.
	MaxPages int
}
