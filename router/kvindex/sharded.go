package kvindex

import (
	"errors"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/kv"
)

// MaxShards bounds [ShardedConfig.Shards].
const MaxShards = 256

// ShardedConfig sizes a [Sharded] index. The zero value works.
type ShardedConfig struct {
	Config     // limits of each shard separately
	Shards int `default:"8" min:"1" max:"256"` // 1 to MaxShards. Default 8
}

// Validate reports all faults at once, each wrapping [ErrConfig]. Zeros count as their defaults.
func (c ShardedConfig) Validate() error { return bounds.CheckAs(ErrConfig, bounds.Fill(c)) }

// maxChunk is the number of blocks of a run applied per hold of a lock, so that a reader waits
// less than a millisecond for a huge run.
const maxChunk = 4096

// Sharded is an [Index] for many goroutines: several trees (shards), each with a lock that
// readers share. A sequence's first block decides its shard, so a lookup reads one shard. If all
// prompts share a prefix, all blocks are in one shard; then readers still run concurrently, but
// writers do not. Changes of a holder are applied in the order of the calls, so call for one
// holder from one goroutine at a time.
//
// Locks: a change holds one shard's lock at a time, except Swap, which takes all in ascending
// order. mu is taken only while no shard's lock is held. So no two calls can wait for each
// other.
type Sharded struct {
	shards []shard
	ends   ends

	mu sync.RWMutex // guards held; never taken after a shard's lock
	// held counts the blocks of each holder over all shards. Each count is updated when a change
	// is complete, so Held never waits for a shard.
	held map[kv.Rank]*atomic.Int64
}

// shard is padded to its own cache lines, because readers write to its lock.
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
	cfg = bounds.Fill(cfg)
	s := &Sharded{shards: make([]shard, cfg.Shards), held: map[kv.Rank]*atomic.Int64{}}
	for i := range s.shards {
		x, err := New(cfg.Config)
		if err != nil {
			return nil, err
		}
		s.shards[i].x, s.shards[i].number = x, i
	}
	return s, nil
}

// Shards returns the number of shards.
func (s *Sharded) Shards() int { return len(s.shards) }

// Branch returns the number of the shard of all sequences whose first block has this hash.
func (s *Sharded) Branch(first kv.BlockHash) int {
	hi, lo := bits.Mul64(uint64(first)^0x2545f4914f6cdd1d, 0xe7037ed1a0b428db)
	at, _ := bits.Mul64(hi^lo, uint64(len(s.shards)))
	return int(at)
}

// Find is [Index.Find]. It takes the shared lock of one shard.
func (s *Sharded) Find(hashes []kv.BlockHash, dst []Overlap) []Overlap {
	if len(hashes) == 0 {
		return dst
	}
	sh := &s.shards[s.Branch(hashes[0])]
	sh.RLock()
	dst = sh.x.Find(hashes, dst)
	sh.RUnlock()
	return dst
}

// Store is [Index.Store]. A run of more than 4,096 blocks is applied in parts of 4,096. After an
// error the parts before it stay applied.
func (s *Sharded) Store(h kv.Rank, run Run) (stored int, err error) {
	if run.Locals != nil && len(run.Hashes) != len(run.Locals) {
		return s.storeOne(h, run)
	}
	for {
		part := run
		n := min(maxChunk, len(run.Hashes))
		part.Hashes = run.Hashes[:n]
		if run.Locals != nil {
			part.Locals = run.Locals[:n]
			run.Locals = run.Locals[n:]
		}
		done, err := s.storeOne(h, part)
		stored += done
		if err != nil || n == len(run.Hashes) {
			return stored, err
		}
		run = Run{run.Hashes[n-1], true, run.Hashes[n:], run.Locals}
	}
}

// storeOne stores a run while it holds its shard's lock, and returns the number of blocks that
// were new to h. The count that Held reads changes after the lock is released: Held may lag
// behind a change that is in progress, but never waits.
func (s *Sharded) storeOne(h kv.Rank, run Run) (int, error) {
	sh := s.shardFor(h, run)
	sh.Lock()
	before := sh.x.held
	stored, err := sh.x.Store(h, run)
	more := sh.x.held - before
	sh.Unlock()
	// After the shard's lock is released: mu is never taken while one is held.
	s.count(h, more)
	if err == nil && len(run.Hashes) > 0 {
		s.ends.note(run.Hashes[len(run.Hashes)-1], sh.number)
	}
	return stored, err
}

// count adds more, which may be negative, to the number of blocks of holder h. The caller holds
// no shard's lock.
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

// shardFor returns the shard to which run of holder h belongs. A run that belongs nowhere
// (empty, or with an unknown parent) goes to shard 0, which refuses it or does nothing.
func (s *Sharded) shardFor(h kv.Rank, run Run) *shard {
	switch {
	case run.HasParent:
	case len(run.Hashes) > 0:
		return &s.shards[s.Branch(run.Hashes[0])]
	default:
		return &s.shards[0]
	}
	// The run belongs to the shard of its parent. A block's hash does not tell its shard, so
	// try the shard that ends remembers first, and then ask all.
	holds := func(i int) bool { return s.shards[i].x.Holds(h, run.Parent) }
	if i := s.ends.shard(run.Parent); i < len(s.shards) && s.shards[i].read(i, holds) {
		return &s.shards[i]
	}
	return &s.shards[max(s.shardWhere(holds), 0)]
}

// read returns ask(i), called under the shared lock of shard sh. i is its number.
func (sh *shard) read(i int, ask func(i int) bool) bool {
	sh.RLock()
	defer sh.RUnlock()
	return ask(i)
}

// shardWhere returns the number of a shard for which ask is true, or -1. Shards whose lock a writer
// holds are asked last: waiting for each in turn would make writers of different shards run one
// after the other.
func (s *Sharded) shardWhere(ask func(i int) bool) int {
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

// ends remembers the shards in which recent runs ended, for the runs that continue them. It may
// be wrong, so the caller verifies it. An entry is the upper 24 bits of a block hash and 8 bits
// of shard number.
type ends [1 << 12]atomic.Uint32

// note remembers that a run whose last block has this hash is in shard.
func (e *ends) note(hash kv.BlockHash, shard int) {
	e[hash%kv.BlockHash(len(e))].Store(uint32(hash>>40)<<8 | uint32(shard))
}

// shard returns the number of the shard remembered for a hash, or MaxShards if there is none. It
// is wrong if another hash has overwritten the entry and has the same low bits and the same
// upper 24; that costs the caller one failed check.
func (e *ends) shard(hash kv.BlockHash) int {
	if v := e[hash%kv.BlockHash(len(e))].Load(); v>>8 == uint32(hash>>40) {
		return int(v & 0xff)
	}
	return MaxShards
}

// Remove is [Index.Remove].
func (s *Sharded) Remove(h kv.Rank, hashes []kv.BlockHash) (known int) {
	// A hash does not tell its shard, so ask each shard for any of the hashes, and change
	// each shard at most once.
	gone := 0
	var asked [MaxShards]bool
	for known < len(hashes) {
		i := s.shardWhere(func(i int) bool {
			x := s.shards[i].x
			return !asked[i] && slices.ContainsFunc(hashes, func(hash kv.BlockHash) bool { return x.Holds(h, hash) })
		})
		if i < 0 {
			break
		}
		sh := &s.shards[i]
		sh.Lock()
		before := sh.x.held
		known += sh.x.Remove(h, hashes)
		gone += before - sh.x.held
		sh.Unlock()
		asked[i] = true
	}
	s.count(h, -gone)
	return known
}

// each calls do for each shard in turn, under its lock.
func (s *Sharded) each(do func(x *Index)) {
	for i := range s.shards {
		s.shards[i].Lock()
		do(s.shards[i].x)
		s.shards[i].Unlock()
	}
}

// drop removes the blocks of holder h from each shard that has more than maxChunk of its blocks.
// It removes about maxChunk blocks at a time, because readers wait meanwhile, and starts with
// the last run, so that a prefix remains. Fewer blocks are left to the caller, which calls Clear
// or Forget on each shard afterwards. It also deletes the count that Held reads.
//
// Readers may find the holder's remaining blocks between two parts. That is no overcount: the
// holder had these blocks when the call began. Blocks stored meanwhile for the holder are not
// expected, see Sharded; the Clear or Forget after drop removes these blocks too.
func (s *Sharded) drop(h kv.Rank) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.RLock()
		var firsts []kv.BlockHash // of each run the first block
		var blocks []int          // of each run the number of blocks
		// A few blocks need no parts: the caller's Clear or Forget removes them at once.
		if sh.x.Held(h) > maxChunk {
			for _, run := range sh.x.DumpHolder(h, nil) {
				firsts, blocks = append(firsts, run.Hashes[0]), append(blocks, len(run.Hashes))
			}
		}
		sh.RUnlock()
		for last := len(firsts) - 1; last >= 0; {
			sh.Lock()
			for part := 0; last >= 0 && part < maxChunk; last-- {
				sh.x.Remove(h, firsts[last:last+1])
				part += blocks[last]
			}
			sh.Unlock()
		}
	}
	s.mu.Lock()
	delete(s.held, h)
	s.mu.Unlock()
}

// Clear is [Index.Clear]. Many blocks are removed in several parts, between which readers can
// run.
func (s *Sharded) Clear(h kv.Rank) {
	s.drop(h)
	s.each(func(x *Index) { x.Clear(h) })
}

// Forget is [Index.Forget]. Many blocks are removed in several parts, between which readers can
// run.
func (s *Sharded) Forget(h kv.Rank) {
	s.drop(h)
	s.each(func(x *Index) { x.Forget(h) })
}

// Swap is [Index.Swap]. Readers see all of the exchange or nothing. So a large content can appear
// at once: store it under another rank, then swap.
func (s *Sharded) Swap(a, b kv.Rank) {
	if a == b {
		return
	}
	s.mu.Lock()
	heldA, heldB := s.held[a], s.held[b]
	delete(s.held, a)
	delete(s.held, b)
	if heldA != nil {
		s.held[b] = heldA
	}
	if heldB != nil {
		s.held[a] = heldB
	}
	s.mu.Unlock()
	// All locks are held until the last shard is swapped, in ascending order: no reader sees a
	// state in which only some shards are swapped.
	for i := range s.shards {
		s.shards[i].Lock()
		defer s.shards[i].Unlock()
		s.shards[i].x.Swap(a, b)
	}
}

// Hand gives the blocks of holder from to holder to, which must be unknown, in O(1) for each shard. It reports whether from had
// blocks. It does not wait for all shards at once, as Swap does: a reader may find some blocks under the one holder and some under
// the other.
func (s *Sharded) Hand(from, to kv.Rank) (some bool) {
	s.mu.Lock()
	if n := s.held[from]; n != nil {
		s.held[to], some = n, n.Load() > 0
		delete(s.held, from)
	}
	s.mu.Unlock()
	if !some {
		s.Forget(from)
		s.Forget(to)
		return false
	}
	s.each(func(x *Index) { x.Swap(from, to) })
	return true
}

// Holds is [Index.Holds].
func (s *Sharded) Holds(h kv.Rank, hash kv.BlockHash) bool {
	return s.shardWhere(func(i int) bool { return s.shards[i].x.Holds(h, hash) }) >= 0
}

// Held is [Index.Held] as of the last complete change. It never waits for a change.
func (s *Sharded) Held(h kv.Rank) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.held[h]; n != nil {
		return int(n.Load())
	}
	return 0
}

// readEach calls do for each shard in turn, under its shared lock.
func (s *Sharded) readEach(do func(x *Index)) {
	for i := range s.shards {
		s.shards[i].RLock()
		do(s.shards[i].x)
		s.shards[i].RUnlock()
	}
}

// DumpHolder is [Index.DumpHolder] with copied slices: the runs of one shard, then those of the
// next. A change between two shards may be in the result only in part.
func (s *Sharded) DumpHolder(h kv.Rank, dst []Run) []Run {
	s.readEach(func(x *Index) {
		at := len(dst)
		dst = x.DumpHolder(h, dst)
		for j := range dst[at:] {
			dst[at+j] = dst[at+j].Clone()
		}
	})
	return dst
}

// Check is [Index.Check] of each shard. It returns the faults of all.
func (s *Sharded) Check() error {
	var errs []error
	s.readEach(func(x *Index) { errs = append(errs, x.Check()) })
	return errors.Join(errs...)
}
