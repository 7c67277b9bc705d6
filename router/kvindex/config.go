package kvindex

import (
	"errors"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// ErrConfig is wrapped by the errors of the Validate methods and of [New].
var ErrConfig = errors.New("kvindex: invalid config")

// Reasons to refuse a store. They are returned unwrapped, so that a flood of bad events costs no
// allocation.
var (
	// ErrUnknownParent: the holder is not known to hold the parent. Nothing was applied. An
	// event was lost, so recover the holder's state.
	ErrUnknownParent = errors.New("kvindex: the holder does not hold the parent block: recover its state")
	// ErrSequence: different numbers of hashes and local hashes, or a block is its own parent.
	ErrSequence = errors.New("kvindex: invalid sequence of blocks")
	// ErrForeignHash: the hashes are not those of kv.Chain. Translate them with Names.
	ErrForeignHash = errors.New("kvindex: block hash is not the chain of the local hashes: translate it with Names")
	// ErrCollision: another prefix has the same hash. The blocks before it were applied.
	ErrCollision = errors.New("kvindex: two prefixes have the same block hash")
	// ErrFull: a limit of Config is reached. Nothing was applied.
	ErrFull = errors.New("kvindex: limit of blocks or holders reached: raise it or forget workers")
)

// Upper bounds of [Config].
const (
	MaxBlocks  = 1 << 30
	MaxHolders = 1 << 16
)

// Config limits an [Index]. The zero value works.
type Config struct {
	// Blocks bounds the distinct blocks. Default 1<<25, about 1 GB: a block takes 30 bytes,
	// including its share of the tables.
	Blocks int `default:"1<<25" min:"1" max:"1<<30"`
	// HolderBlocks bounds the blocks of one holder. Default 1<<22: 67 million tokens in blocks
	// of 16, more than a node's host memory holds.
	HolderBlocks int `default:"1<<22" min:"1" max:"1<<30"`
	// Holders bounds the holders known at a time. Default 4096.
	Holders int `default:"4096" min:"1" max:"1<<16"`

	// Seed varies the order of the hash tables, so that an attacker can't choose hashes that
	// collide in them. It does not change any result.
	Seed uint64
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config { return bounds.Fill(c) }

// Validate reports all faults at once, each wrapping [ErrConfig] with field and value. Zeros
// count as their defaults.
func (c Config) Validate() error { return bounds.CheckAs(ErrConfig, c.WithDefaults()) }
