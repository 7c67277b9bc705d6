package radixcache

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/internal/radixcache/missratio"
	"github.com/coppice-llm/coppice/kv"
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
	PageTokens int `default:"16" min:"1" max:"1<<15"`
	// BlockTokens is the number of tokens in an event's block, a multiple of
	// PageTokens. Default: the first multiple that is 16 or more.
	BlockTokens int `min:"1"`
	// Events turns on block hashes and the event journal, at 0.8 ns per published
	// token. Off, they cost nothing.
	Events bool
	// Policy decides which leaf is evicted first. Default LRU.
	Policy Policy

	// SLRUHits is the number of reuses after which SLRU keeps a leaf longer than
	// those with fewer. Default 1.
	SLRUHits int `default:"1" min:"1" max:"2147483647"`

	// WholeLeaves makes Evict remove whole leaves, and keeps split nodes apart:
	// the tree then has the nodes that SGLang's would have. By default Evict
	// removes a leaf's last pages first, and single-child runs are joined.
	WholeLeaves bool

	// TTL is how long an unused node is kept: Expire removes older ones, unless
	// they are pinned. It is exact to TTL/64: see ages. 0 sets no limit.
	TTL time.Duration `min:"0s"`

	// PinnedTokens is the budget of PinPrefix: the tokens that it may protect at
	// a time, summed over the pinned prefixes. Default 0: none.
	PinnedTokens int `min:"0"`

	// CurveSamples is the number of blocks that the live curve of
	// [Cache.HitRates] tracks, missratio.MinSamples to missratio.MaxSamples, in
	// some 130 bytes each: [DefaultCurveSamples] needs 2 MB. Default 0: no
	// curve, which costs nothing.
	CurveSamples int
}

// WithDefaults returns a copy with zeros replaced by the defaults. With
// PageTokens 24, for example, BlockTokens becomes 24; with 4 it becomes 16.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if page := max(1, c.PageTokens); c.BlockTokens == 0 {
		c.BlockTokens = kv.CeilPages(defaultTokens, page) * page
	}
	return c
}

// Validate reports all faults at once, each wrapping [ErrConfig] with field
// and value. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{bounds.CheckAs(ErrConfig, c)}
	if c.PageTokens > 0 && c.BlockTokens > 0 && c.BlockTokens%c.PageTokens != 0 {
		errs = append(errs, fmt.Errorf("%w: BlockTokens is %d, want a multiple of PageTokens, %d", ErrConfig, c.BlockTokens, c.PageTokens))
	}
	if !policyNames.Has(c.Policy) {
		errs = append(errs, fmt.Errorf("%w: Policy is %v, want %s", ErrConfig, c.Policy, policyNames.Names()))
	}
	if s := c.CurveSamples; s != 0 && (s < missratio.MinSamples || s > missratio.MaxSamples) {
		errs = append(errs, fmt.Errorf("%w: CurveSamples is %d, want %d to %d, or 0 for no curve", ErrConfig, s, missratio.MinSamples, missratio.MaxSamples))
	}
	return errors.Join(errs...)
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
