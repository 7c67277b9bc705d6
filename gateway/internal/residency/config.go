package residency

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// ErrConfig is wrapped by errors of Validate and [New]. Others of their errors wrap
// kvindex.ErrConfig.
var ErrConfig = errors.New("residency: invalid config")

// Defaults of [Config].
const (
	DefaultRanks      = 1024
	DefaultRankBlocks = 1 << 19 // 8M tokens in blocks of 16: 1 TB of device memory for an 8B model
)

// Config limits a [Residency]. The zero value works.
type Config struct {
	// Index configures the index of device memory. Holders bounds the known ranks, HolderBlocks
	// the blocks of one rank over all shards, and Blocks the blocks in one shard.
	//
	// While Holders * HolderBlocks <= Blocks, as by default, no worker can take another's room,
	// however much it sends; otherwise workers that flood together can fill the index for all.
	// The bound itself takes no memory: a rank can make the index keep HolderBlocks blocks of 20
	// bytes, or 120 where each block is a branch of its own, plus 35 with hashes of its own;
	// twice that while a dump is being applied.
	//
	// Defaults: Holders is DefaultRanks; HolderBlocks is DefaultRankBlocks, or Blocks/Holders if
	// that is less; Blocks is Holders*HolderBlocks, at most kvindex.MaxBlocks.
	Index kvindex.ShardedConfig
	// TierBlocks bounds the blocks of a rank that are only in lower tiers; further ones are not
	// kept. Default 1<<20: 16M tokens in blocks of 16, 2 TB of host memory for an 8B model. For
	// a rank with lower tiers, each block, including those on the device, takes 35 bytes in the
	// rank's table and as many as above in the index of all tiers.
	TierBlocks int `default:"1<<20" min:"1" max:"1<<30"`
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	if c.Index.Holders == 0 {
		c.Index.Holders = DefaultRanks
	}
	if c.Index.HolderBlocks == 0 {
		c.Index.HolderBlocks = DefaultRankBlocks
		if c.Index.Blocks > 0 && c.Index.Holders > 0 {
			c.Index.HolderBlocks = max(1, min(DefaultRankBlocks, c.Index.Blocks/c.Index.Holders))
		}
	}
	if c.Index.Blocks == 0 {
		c.Index.Blocks = kvindex.MaxBlocks
		if c.Index.Holders <= kvindex.MaxHolders && c.Index.HolderBlocks <= kvindex.MaxBlocks {
			c.Index.Blocks = min(c.Index.Holders*c.Index.HolderBlocks, kvindex.MaxBlocks)
		}
	}
	return bounds.Fill(c)
}

// Validate reports all faults at once. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{c.Index.Validate(), bounds.CheckAs(ErrConfig, c)}
	if most := kvindex.MaxHolders / 2; c.Index.Holders > most {
		errs = append(errs, fmt.Errorf("%w: Index.Holders is %d, want at most %d", ErrConfig, c.Index.Holders, most))
	}
	return errors.Join(errs...)
}
