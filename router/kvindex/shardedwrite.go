package kvindex

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Remove is [Index.Remove].
func (s *Sharded) Remove(h kv.Rank, hashes []kv.BlockHash) (known int) {
	// A hash does not tell its shard, so ask each shard for any of the hashes, and change
	// each shard at most once.
	gone := 0
	var asked [MaxShards]bool
	for known < len(hashes) {
		i := s.first(func(i int) bool {
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

// Holds is [Index.Holds].
func (s *Sharded) Holds(h kv.Rank, hash kv.BlockHash) bool {
	return s.first(func(i int) bool { return s.shards[i].x.Holds(h, hash) }) >= 0
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
