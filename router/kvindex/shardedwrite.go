package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// foreign is the names of a holder whose hashes are of another make, or nil.
func (s *Sharded) foreign(h Holder) *lockedNames {
	s.mu.RLock()
	n := s.names[h]
	s.mu.RUnlock()
	return n
}

// learn gives a holder names, nil if too many have some.
func (s *Sharded) learn(h Holder) *lockedNames {
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
func (s *Sharded) Remove(h Holder, hashes []kv.BlockHash) (known int) {
	n := s.foreign(h)
	if n == nil {
		return s.remove(h, hashes)
	}
	n.Lock()
	defer n.Unlock()
	n.hash = n.names.Remove(hashes, n.hash[:0])
	return s.remove(h, n.hash)
}

func (s *Sharded) remove(h Holder, hashes []kv.BlockHash) (known int) {
	if s.cfg.By == ByWorker {
		i, _ := s.homeOf(h.Worker, false)
		sh := &s.shards[max(i, 0)]
		sh.Lock()
		defer sh.Unlock()
		return sh.x.Remove(h, hashes)
	}
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
		before := sh.x.stats.UnknownBlocks
		known += sh.x.Remove(h, hashes)
		sh.x.stats.UnknownBlocks = before // of this shard alone
		sh.Unlock()
		asked[i] = true
	}
	if known < len(hashes) {
		s.shards[0].Lock()
		s.shards[0].x.stats.UnknownBlocks += uint64(len(hashes) - known)
		s.shards[0].Unlock()
	}
	return known
}

// Apply is [Index.Apply], with a slice of its own for the hashes.
func (s *Sharded) Apply(h Holder, e kv.Event) error {
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

// Clear is [Index.Clear].
func (s *Sharded) Clear(h Holder) {
	s.each(func(x *Index) { x.Clear(h) })
	if n := s.foreign(h); n != nil {
		n.Lock()
		n.names.Clear()
		n.Unlock()
	}
}

// RemoveWorker is [Index.RemoveWorker].
func (s *Sharded) RemoveWorker(w WorkerID) {
	s.each(func(x *Index) { x.RemoveWorker(w) })
	s.mu.Lock()
	for h := range s.names { // all of the worker's go, in whatever order
		if h.Worker == w {
			delete(s.names, h)
		}
	}
	s.mu.Unlock()
	s.leave(w)
}

// Replace takes all that a holder had and stores runs instead, parents first, in
// one step: no reader sees it between. It is how a dump of the holder is applied.
// With an error the runs before it are stored.
func (s *Sharded) Replace(h Holder, runs []Run) error {
	if s.cfg.By == ByWorker {
		s.homeOf(h.Worker, true)
	}
	n := s.foreign(h)
	if n == nil && len(runs) > 0 && ofAnotherMake(runs[0]) {
		n = s.learn(h)
	}
	if n != nil {
		n.Lock()
		defer n.Unlock()
		n.names.Clear()
	}
	home, _ := s.homeOf(h.Worker, false)
	for i := range s.shards {
		s.shards[i].Lock()
		defer s.shards[i].Unlock()
		s.shards[i].x.Clear(h)
	}
	for _, r := range runs {
		if n != nil {
			var err error
			if r, _, err = n.names.Store(r); err != nil {
				return s.shards[0].x.refuse(err, len(r.Locals))
			}
		}
		if _, err := s.lockedFor(h, r, home).Store(h, r); err != nil {
			return err
		}
	}
	return nil
}

// ofAnotherMake tells whether a first run has other hashes than those of kv.Chain.
func ofAnotherMake(r Run) bool {
	return !r.HasParent && len(r.Hashes) > 0 && len(r.Locals) > 0 && r.Hashes[0] != kv.BlockHash(r.Locals[0])
}

// lockedFor is shardFor while all locks are held.
func (s *Sharded) lockedFor(h Holder, r Run, home int) *Index {
	switch {
	case s.cfg.By == ByWorker:
		return s.shards[home].x
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

// Held is [Index.Held].
func (s *Sharded) Held(h Holder) int {
	blocks := 0
	for i := range s.shards {
		s.shards[i].RLock()
		blocks += s.shards[i].x.Held(h)
		s.shards[i].RUnlock()
	}
	return blocks
}

// Holders is [Index.Holders].
func (s *Sharded) Holders(dst []Holder) []Holder {
	at := len(dst)
	for i := range s.shards {
		s.shards[i].RLock()
		dst = s.shards[i].x.Holders(dst)
		s.shards[i].RUnlock()
	}
	slices.SortFunc(dst[at:], Holder.Compare)
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
