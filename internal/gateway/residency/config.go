package residency

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/router/kvindex"
)

// ErrConfig is wrapped, beside kvindex.ErrConfig, by the errors of Validate and [New].
var ErrConfig = errors.New("residency: invalid config")

// Defaults of [Config].
const (
	DefaultRanks      = 1024
	DefaultRankBlocks = 1 << 19 // 8M tokens in blocks of 16: 1 TB of device memory for a model of 8B
)

// Config limits a [Residency]. The zero value works.
type Config struct {
	// Index is the device's. Holders is how many ranks may be known, HolderBlocks what
	// one of them may have in all shards together, and Blocks what is in one shard.
	//
	// While Holders * HolderBlocks <= Blocks, as it is by default, no worker can take
	// another's room, however much it sends; with less, those that flood together can
	// fill the index for all. It is a bound and takes no memory of itself: what a rank
	// can make us keep is HolderBlocks blocks of 50 bytes, 220 where each is a branch of
	// its own, and 35 more with hashes of its own; while a dump is put in, twice.
	//
	// Defaults: Holders DefaultRanks; HolderBlocks DefaultRankBlocks, or Blocks/Holders
	// if that is less; Blocks is Holders*HolderBlocks, at most kvindex.MaxBlocks.
	Index kvindex.ShardedConfig
	// TierBlocks is how many blocks a rank may have in lower tiers alone. Those beyond
	// are not kept. Default 1<<20: 16M tokens in blocks of 16, 2 TB of host memory for a model of 8B. For a rank with lower tiers each block, those
	// of the device too, takes 35 bytes in its table and as many as above in the index of
	// all tiers.
	TierBlocks int `default:"1<<20" min:"1" max:"1<<30"`
}

// WithDefaults returns a copy with the defaults in place of zeros.
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

// Validate reports all faults at once. Zeros count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := []error{c.Index.Validate(), bounds.CheckAs(ErrConfig, c)}
	if most := kvindex.MaxHolders / 2; c.Index.Holders > most {
		errs = append(errs, fmt.Errorf("%w: Index.Holders is %d, want at most %d", ErrConfig, c.Index.Holders, most))
	}
	return errors.Join(errs...)
}
