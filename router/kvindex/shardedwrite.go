package kvindex

import (
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// foreign is the names of a holder whose hashes are of another make, or nil.
func (s *Sharded) foreign(h kv.Rank) *lockedNames {
	s.mu.RLock()
	n := s.names[h]
	s.mu.RUnlock()
	return n
}

// learn gives a holder names, nil if too many have some.
func (s *Sharded) learn(h kv.Rank) *lockedNames {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[h] == nil {
		if len(s.names) >= s.cfg.Holders {
			return nil
		}
		s.names[h] = &lockedNames{names: NewNames(s.cfg.HolderBlocks)}
	}
	return s.names[h]
}

// Remove is [Index.Remove].
func (s *Sharded) Remove(h kv.Rank, hashes []kv.BlockHash) (known int) {
	n := s.foreign(h)
	if n == nil {
		return s.remove(h, hashes)
	}
	n.Lock()
	defer n.Unlock()
	n.hash = n.names.Remove(hashes, n.hash[:0])
	return s.remove(h, n.hash)
}

func (s *Sharded) remove(h kv.Rank, hashes []kv.BlockHash) (known int) {
	if s.cfg.By == ByWorker {
		sh := &s.shards[s.homeOf(h.Worker)]
		sh.Lock()
		before := sh.x.held
		known = sh.x.Remove(h, hashes)
		gone := before - sh.x.held
		sh.Unlock()
		s.count(h, -gone)
		return known
	}
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
		unknown, before := sh.x.stats.UnknownBlocks, sh.x.held
		known += sh.x.Remove(h, hashes)
		gone += before - sh.x.held
		sh.x.stats.UnknownBlocks = unknown // of this shard alone
		sh.Unlock()
		asked[i] = true
	}
	s.count(h, -gone)
	if known < len(hashes) {
		s.shards[0].Lock()
		s.shards[0].x.stats.UnknownBlocks += uint64(len(hashes) - known)
		s.shards[0].Unlock()
	}
	return known
}

// Apply is [Index.Apply], with a slice of its own for the hashes.
func (s *Sharded) Apply(h kv.Rank, e kv.Event) error {
	switch e.Kind {
	case kv.Stored:
		var r Run
		r.Set(e)
		_, err := s.Store(h, r)
		return err
	case kv.Removed:
		s.Remove(h, e.Hashes)
	case kv.Cleared:
		s.Clear(h)
	}
	return nil
}

// each does something under the lock of each shard in turn.
func (s *Sharded) each(do func(x *Index)) {
	for i := range s.shards {
		s.shards[i].Lock()
		do(s.shards[i].x)
		s.shards[i].Unlock()
	}
}

// drop takes all blocks of a holder, in parts if they are many, as readers wait for
// each: the last runs first, so that what is left is whole.
func (s *Sharded) drop(h kv.Rank) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.RLock()
		var all heads
		if sh.x.Held(h) > maxChunk {
			all = sh.x.heads(h)
		}
		sh.RUnlock()
		for last := len(all.hashes) - 1; last >= 0; {
			sh.Lock()
			for part := 0; last >= 0 && part < maxChunk; last-- {
				sh.x.Remove(h, all.hashes[last:last+1])
				part += int(all.blocks[last])
			}
			sh.Unlock()
		}
	}
	s.mu.Lock()
	delete(s.held, h)
	s.mu.Unlock()
}

// Clear is [Index.Clear]. Of many blocks some go after others.
func (s *Sharded) Clear(h kv.Rank) {
	s.drop(h)
	s.each(func(x *Index) { x.Clear(h) })
	if n := s.foreign(h); n != nil {
		n.Lock()
		n.names.Clear()
		n.Unlock()
	}
}

// RemoveWorker is [Index.RemoveWorker].
func (s *Sharded) RemoveWorker(w kv.WorkerID) {
	s.each(func(x *Index) { x.RemoveWorker(w) })
	s.mu.Lock()
	for h := range s.names { // all of the worker's go, in whatever order
		if h.Worker == w {
			delete(s.names, h)
		}
	}
	for h := range s.held {
		if h.Worker == w {
			delete(s.held, h)
		}
	}
	s.mu.Unlock()
}

// Forget is [Index.Forget]. Of many blocks some go after others.
func (s *Sharded) Forget(h kv.Rank) {
	s.drop(h)
	s.each(func(x *Index) { x.Forget(h) })
	s.mu.Lock()
	delete(s.names, h)
	s.mu.Unlock()
}

// Swap is [Index.Swap] of two ranks of one worker, in one step for readers. It is how
// what took long to store comes in at once: under another rank first, then swapped.
func (s *Sharded) Swap(a, b kv.Rank) {
	if a.Worker != b.Worker {
		panic(fmt.Sprintf("kvindex: Swap of %v and %v: two workers may be in different shards", a, b))
	}
	if a == b {
		return
	}
	s.mu.Lock()
	exchange(s.names, a, b)
	exchange(s.held, a, b)
	s.mu.Unlock()
	for i := range s.shards {
		s.shards[i].Lock()
		defer s.shards[i].Unlock()
		s.shards[i].x.Swap(a, b)
	}
}

// exchange lets what is at two keys change places.
func exchange[V any](m map[kv.Rank]*V, a, b kv.Rank) {
	atA, atB := m[a], m[b]
	delete(m, a)
	delete(m, b)
	if atA != nil {
		m[b] = atA
	}
	if atB != nil {
		m[a] = atB
	}
}

// Replace takes all that a holder had and stores runs instead, parents first, in
// one step: no reader sees it between. It is how a dump of the holder is applied.
// A run that is refused is left out, as one bad run does not cost the others; the
// first refusal is returned, but an ErrCollision before all others.
func (s *Sharded) Replace(h kv.Rank, runs []Run) (first error) {
	n := s.foreign(h)
	if n == nil && !s.cfg.Chained && len(runs) > 0 && ofAnotherMake(runs[0]) {
		n = s.learn(h)
	}
	if n != nil {
		n.Lock()
		defer n.Unlock()
		n.names.Clear()
	}
	more := 0
	defer func() { s.count(h, more) }() // after the shards' locks
	for i := range s.shards {
		s.shards[i].Lock()
		defer s.shards[i].Unlock()
		more -= s.shards[i].x.Held(h)
		s.shards[i].x.Clear(h)
	}
	defer func() {
		for i := range s.shards {
			more += s.shards[i].x.Held(h)
		}
	}()
	for _, r := range runs {
		if err := s.replaceOne(h, r, n); first == nil || err == ErrCollision {
			first = err
		}
	}
	return first
}

// replaceOne stores a run while all locks are held. A name that stands in two runs
// means the second one's block, as in Store.
func (s *Sharded) replaceOne(h kv.Rank, r Run, n *lockedNames) error {
	if n != nil {
		translated, gone, err := n.names.Store(r)
		if err != nil {
			return s.shards[0].x.refuse(err, len(r.Locals))
		}
		if len(gone) > 0 {
			for i := range s.shards {
				s.shards[i].x.Remove(h, gone)
			}
		}
		r = translated
	}
	_, err := s.lockedFor(h, r).Store(h, r)
	return err
}

// ofAnotherMake tells whether a first run has other hashes than those of kv.Chain.
func ofAnotherMake(r Run) bool {
	return !r.HasParent && len(r.Hashes) > 0 && len(r.Locals) > 0 && r.Hashes[0] != kv.BlockHash(r.Locals[0])
}

// lockedFor is shardFor while all locks are held.
func (s *Sharded) lockedFor(h kv.Rank, r Run) *Index {
	switch {
	case s.cfg.By == ByWorker:
		return s.shards[s.homeOf(h.Worker)].x
	case !r.HasParent && len(r.Locals) > 0:
		return s.shards[s.Branch(r.Locals[0])].x
	}
	for i := range s.shards {
		if x := s.shards[i].x; r.HasParent && x.Holds(h, r.Parent) {
			return x
		}
	}
	return s.shards[0].x
}

// Holds is [Index.Holds].
func (s *Sharded) Holds(h kv.Rank, hash kv.BlockHash) bool {
	return s.first(func(i int) bool { return s.shards[i].x.Holds(h, hash) }) >= 0
}

// Held is [Index.Held], as of the last change that has ended. It waits for none.
func (s *Sharded) Held(h kv.Rank) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.held[h]; n != nil {
		return int(n.Load())
	}
	return 0
}

// Holders is [Index.Holders].
func (s *Sharded) Holders(dst []kv.Rank) []kv.Rank {
	at := len(dst)
	for i := range s.shards {
		s.shards[i].RLock()
		dst = s.shards[i].x.Holders(dst)
		s.shards[i].RUnlock()
	}
	slices.SortFunc(dst[at:], kv.Rank.Compare)
	return append(dst[:at], slices.Compact(dst[at:])...)
}

// Stats sums up the shards', each as of another moment.
func (s *Sharded) Stats() Stats {
	var sum Stats
	for i := range s.shards {
		s.shards[i].RLock()
		sum.add(s.shards[i].x.Stats())
		s.shards[i].RUnlock()
	}
	sum.Holders = len(s.Holders(nil))
	return sum
}

// Dump is [Index.Dump] in copies, shard by shard.
func (s *Sharded) Dump(dst []HolderRun) []HolderRun {
	for i := range s.shards {
		s.shards[i].RLock()
		at := len(dst)
		dst = s.shards[i].x.Dump(dst)
		for j := range dst[at:] {
			dst[at+j].Run = dst[at+j].Run.Clone()
		}
		s.shards[i].RUnlock()
	}
	return dst
}

// DumpHolder is [Index.DumpHolder] in copies, shard by shard.
func (s *Sharded) DumpHolder(h kv.Rank, dst []HolderRun) []HolderRun {
	for i := range s.shards {
		s.shards[i].RLock()
		at := len(dst)
		dst = s.shards[i].x.DumpHolder(h, dst)
		for j := range dst[at:] {
			dst[at+j].Run = dst[at+j].Run.Clone()
		}
		s.shards[i].RUnlock()
	}
	return dst
}

// Check is [Index.Check] of each shard.
func (s *Sharded) Check() error {
	for i := range s.shards {
		s.shards[i].RLock()
		err := s.shards[i].x.Check()
		s.shards[i].RUnlock()
		if err != nil {
			return err
		}
	}
	return nil
}
