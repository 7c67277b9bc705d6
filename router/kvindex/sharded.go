package kvindex

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Sharding is what a [Sharded] index is cut by.
type Sharding uint8

// The ways to cut.
const (
	ByBranch Sharding = iota // by the first block: a lookup asks one shard
	ByWorker                 // by worker: writers wait for those of other workers in their shard alone; a lookup asks all
)

var shardings = enum.New[Sharding]("kvindex", "sharding", "branch", "worker")

func (s Sharding) String() string { return shardings.Name(s) }

// UnmarshalText takes the names that String gives.
func (s *Sharding) UnmarshalText(text []byte) error { return shardings.Read(s, text) }

// MaxShards bounds [ShardedConfig.Shards].
const MaxShards = 256

// ShardedConfig sizes a [Sharded] index. The zero value works.
type ShardedConfig struct {
	Config          // of each shard: its limits hold for every shard alone
	Shards int      // 1 to MaxShards. Default 8
	By     Sharding // default ByBranch
}

// Validate reports all faults at once, each wrapping [ErrConfig].
func (c ShardedConfig) Validate() error {
	errs := []error{c.Config.Validate()}
	if c.Shards < 0 || c.Shards > MaxShards {
		errs = append(errs, fmt.Errorf("%w: Shards is %d, want 1 to %d", ErrConfig, c.Shards, MaxShards))
	}
	if !shardings.Has(c.By) {
		errs = append(errs, fmt.Errorf("%w: By is %v", ErrConfig, c.By))
	}
	return errors.Join(errs...)
}

// maxChunk is how many blocks of a run are applied under one lock, so that a
// reader waits less than a millisecond for a huge one.
const maxChunk = 4096

// Sharded is an [Index] for many goroutines: some trees, each behind a lock that
// readers share. What a holder does is applied in the order of the calls, so call
// for one holder from one goroutine at a time. A prefix that all prompts share puts
// all into one branch; then readers still run beside each other, writers do not.
type Sharded struct {
	cfg    ShardedConfig
	shards []shard
	ends   ends

	mu   sync.RWMutex              // of held; never taken after a shard's
	held map[kv.Rank]*atomic.Int64 // blocks in all shards, as of the end of the last change; so that Held waits for no shard
}

// shard is alone on its cache lines: readers of others write their locks too.
type shard struct {
	sync.RWMutex
	x      *Index
	number int
	_      [128]byte
}

// NewSharded makes an empty index. The error wraps [ErrConfig].
func NewSharded(cfg ShardedConfig) (*Sharded, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Shards == 0 {
		cfg.Shards = 8
	}
	cfg.Config = cfg.Config.WithDefaults()
	s := &Sharded{cfg: cfg, shards: make([]shard, cfg.Shards), held: map[kv.Rank]*atomic.Int64{}}
	for i := range s.shards {
		x, err := New(cfg.Config)
		if err != nil {
			return nil, err
		}
		s.shards[i].x, s.shards[i].number = x, i
	}
	return s, nil
}

// Shards is the number of shards.
func (s *Sharded) Shards() int { return len(s.shards) }

// homeOf is the shard of a worker, if cut ByWorker. It follows from the worker's number
// alone: were it remembered, one rank's going could move the others' while they store,
// and a lookup could meet a rank in two shards. The golden ratio spreads numbers one
// after the other best.
func (s *Sharded) homeOf(w kv.WorkerID) int {
	return home(uint64(w)*0x9e3779b97f4a7c15, len(s.shards))
}

// Branch is the shard of the sequences that begin with a block, if cut ByBranch.
func (s *Sharded) Branch(first kv.LocalHash) int {
	hi, lo := bits.Mul64(uint64(first)^0x2545f4914f6cdd1d, 0xe7037ed1a0b428db)
	return home(hi^lo, len(s.shards))
}

// Find is [Index.Find]. Cost, beside it: one shared lock, or one for each shard.
func (s *Sharded) Find(locals []kv.LocalHash, dst []Overlap) []Overlap {
	if len(locals) == 0 {
		return dst
	}
	if s.cfg.By == ByBranch {
		return s.shards[s.Branch(locals[0])].find(locals, dst)
	}
	for i := range s.shards {
		dst = s.shards[i].find(locals, dst)
	}
	return dst
}

func (sh *shard) find(locals []kv.LocalHash, dst []Overlap) []Overlap {
	sh.RLock()
	dst = sh.x.Find(locals, dst)
	sh.RUnlock()
	return dst
}

// Store is [Index.Store]. A run of more than 4,096 blocks is applied in parts,
// of which an error may leave the first ones.
func (s *Sharded) Store(h kv.Rank, run Run) (stored int, err error) {
	if len(run.Hashes) != len(run.Locals) {
		return s.storeOne(h, run)
	}
	for {
		part := run
		n := min(maxChunk, len(run.Locals))
		part.Hashes, part.Locals = run.Hashes[:n], run.Locals[:n]
		done, err := s.storeOne(h, part)
		stored += done
		if err != nil || n == len(run.Locals) {
			return stored, err
		}
		run = Run{run.Hashes[n-1], true, run.Hashes[n:], run.Locals[n:]}
	}
}

func (s *Sharded) storeOne(h kv.Rank, run Run) (int, error) {
	sh := s.shardFor(h, run)
	sh.Lock()
	before := sh.x.held
	stored, err := sh.x.Store(h, run)
	more := sh.x.held - before
	sh.Unlock()
	s.count(h, more)
	if err == nil && len(run.Hashes) > 0 && s.cfg.By == ByBranch {
		s.ends.note(run.Hashes[len(run.Hashes)-1], sh.number)
	}
	return stored, err
}

// count notes that a holder has so many blocks more. No shard's lock is held.
func (s *Sharded) count(h kv.Rank, more int) {
	if more == 0 {
		return
	}
	s.mu.RLock()
	n := s.held[h]
	s.mu.RUnlock()
	if n == nil {
		s.mu.Lock()
		if n = s.held[h]; n == nil {
			n = new(atomic.Int64)
			s.held[h] = n
		}
		s.mu.Unlock()
	}
	n.Add(int64(more))
}

// shardFor is where a run of a holder belongs. What belongs nowhere is refused by
// shard 0.
func (s *Sharded) shardFor(h kv.Rank, run Run) *shard {
	switch {
	case s.cfg.By == ByWorker:
		return &s.shards[s.homeOf(h.Worker)]
	case run.HasParent:
	case len(run.Locals) > 0:
		return &s.shards[s.Branch(run.Locals[0])]
	default:
		return &s.shards[0]
	}
	holds := func(i int) bool { return s.shards[i].x.Holds(h, run.Parent) }
	if i := s.ends.shard(run.Parent); i < len(s.shards) && s.shards[i].read(i, holds) {
		return &s.shards[i]
	}
	return &s.shards[max(s.first(holds), 0)]
}

// read asks under the shared lock.
func (sh *shard) read(i int, ask func(i int) bool) bool {
	sh.RLock()
	defer sh.RUnlock()
	return ask(i)
}

// first is a shard for which ask is true, or -1. Shards that are being written are
// asked last: to wait for each in turn would let writers of different shards run
// one after the other.
func (s *Sharded) first(ask func(i int) bool) int {
	var busy [MaxShards / 64]uint64
	for i := range s.shards {
		sh := &s.shards[i]
		if !sh.TryRLock() {
			busy[i/64] |= 1 << (i % 64)
			continue
		}
		yes := ask(i)
		sh.RUnlock()
		if yes {
			return i
		}
	}
	for i := range s.shards {
		if busy[i/64]>>(i%64)&1 != 0 && s.shards[i].read(i, ask) {
			return i
		}
	}
	return -1
}

// ends remembers in which shard runs ended lately, for what follows them: a hint,
// which is checked. An entry is the upper bits of a hash and a shard.
type ends [1 << 12]atomic.Uint32

func (e *ends) note(hash kv.BlockHash, shard int) {
	e[hash%kv.BlockHash(len(e))].Store(uint32(hash>>40)<<8 | uint32(shard))
}

// shard is the one noted, MaxShards if none is.
func (e *ends) shard(hash kv.BlockHash) int {
	if v := e[hash%kv.BlockHash(len(e))].Load(); v>>8 == uint32(hash>>40) {
		return int(v & 0xff)
	}
	return MaxShards
}
