package radixcache

import (
	"errors"
	"fmt"
	"time"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// ErrConfig is wrapped by the errors of [Config.Validate] and [New].
var ErrConfig = errors.New("radixcache: invalid config")

// MaxPageTokens is the largest allowed [Config.PageTokens]. It makes a number of
// tokens within a page fit the 16 bits of node.skip.
const MaxPageTokens = 1 << 15

// defaultTokens is the default size of pages and blocks in tokens. It is the
// default page size of vLLM and the default block size of Dynamo. Smaller pages
// would reuse more of a prompt, but copying a partial page (Match.Partial) makes
// up for most of the difference.
const defaultTokens = 16

// Config is the shape of a [Cache]. The zero value works.
type Config struct {
	// PageTokens is the number of tokens in a page, 1 to MaxPageTokens. Default 16.
	PageTokens int `default:"16" min:"1" max:"1<<15"`
	// BlockTokens is the number of tokens in an event's block, a multiple of
	// PageTokens. Default: the first multiple that is 16 or more.
	BlockTokens int `min:"1"`
	// Events turns on block hashes and the events of [Cache.TakeEvents]. They cost
	// 0.8 ns per token added; turned off, they cost nothing.
	Events bool
	// Policy decides which leaf is evicted first. Default LRU.
	Policy Policy

	// SLRUHits is the number of reuses from which on the policy SLRU keeps a leaf
	// longer than leaves with fewer reuses. Default 1.
	SLRUHits int `default:"1" min:"1" max:"2147483647"`

	// WholeLeaves makes Evict remove whole leaves, and never joins a node with its
	// single child: the tree then has the nodes that SGLang's would have. By default
	// Evict removes a leaf's last pages first, and the cache joins such nodes.
	WholeLeaves bool

	// TTL is the time for which an unused node is kept: Expire removes nodes that
	// were not used for longer, unless they are pinned. Expire may be late by TTL/64.
	// 0 sets no limit.
	TTL time.Duration `min:"0s"`

	// PinnedTokens is the budget of PinPrefix: the most tokens that all pinned
	// prefixes may have in sum. Default 0: no prefix can be pinned.
	PinnedTokens int `min:"0"`

	// Curve makes the estimate behind [Cache.HitRates]; package missratio has one. It
	// belongs to the cache from then on. Default nil: there is no estimate, and it costs nothing.
	Curve Curve
}

// WithDefaults returns a copy with zero fields replaced by their defaults. With
// PageTokens 24, for example, BlockTokens becomes 24; with PageTokens 4 it becomes 16.
func (c Config) WithDefaults() Config {
	c = bounds.Fill(c)
	if page := max(1, c.PageTokens); c.BlockTokens == 0 {
		c.BlockTokens = kv.CeilPages(defaultTokens, page) * page
	}
	return c
}

// Validate returns an error that lists all fields with invalid values and wraps
// [ErrConfig], or nil. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{bounds.CheckAs(ErrConfig, c)}
	if c.PageTokens > 0 && c.BlockTokens > 0 && c.BlockTokens%c.PageTokens != 0 {
		errs = append(errs, fmt.Errorf("%w: BlockTokens is %d, want a multiple of PageTokens, %d", ErrConfig, c.BlockTokens, c.PageTokens))
	}
	if !policyNames.Has(c.Policy) {
		errs = append(errs, fmt.Errorf("%w: Policy is %v, want %s", ErrConfig, c.Policy, policyNames.Names()))
	}
	return errors.Join(errs...)
}

// Quota bounds the pages that one namespace holds, in its own tree and in its
// private spaces after public prefixes. A public prefix itself belongs to the
// namespace without salt. The zero Quota means no quota.
type Quota struct {
	// MinPages is the number of pages that Evict leaves to the namespace. EvictAny
	// ignores it.
	MinPages int
	// MaxPages is an upper bound: at their end Insert, Extend and KeepQuotas free
	// unpinned pages that the namespace holds beyond it. 0 sets no limit.
	MaxPages int
}
