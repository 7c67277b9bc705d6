package slotted

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/mempool/ops"
	"github.com/coppice-llm/coppice/mempool"
)

// run does one operation, on a worker.
func (s *Store) run(w int, j *ops.Job) mempool.Done {
	switch j.Op.Kind {
	case mempool.Put:
		return s.put(w, j)
	case mempool.Get:
		return s.get(w, j)
	case mempool.Drop:
		return s.drop(w, j)
	case mempool.Probe:
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.index.Has(j.Op.Extent.Key) {
			return failed(mempool.ErrMiss)
		}
		s.index.Touch(j.Op.Extent.Key)
		d := mempool.Done{Found: 1}
		for _, k := range j.Op.Then {
			if !s.index.Has(k) {
				break
			}
			s.index.Touch(k)
			d.Found++
		}
		return d
	default:
		return failed(s.medium.Flush(w, s.placed))
	}
}

func failed(err error) mempool.Done { return mempool.Done{Err: err} }

// put writes an extent and then makes it known. It waits for the put of its parent, which
// has begun before.
func (s *Store) put(w int, j *ops.Job) mempool.Done {
	x := &j.Op.Extent
	s.mu.Lock()
	if s.pending[x.Key] == j {
		defer s.settled(x.Key)
	} else if first := s.putBefore(x.Key, j); first != nil { // of the same extent
		s.mu.Unlock()
		<-first.Left()
		s.mu.Lock()
	}
	if s.index.Has(x.Key) {
		s.index.Touch(x.Key)
		s.mu.Unlock()
		return mempool.Done{}
	}
	parent := s.putBefore(x.Parent, j)
	if parent == nil {
		if err := s.index.CanAdd(x); err != nil {
			s.mu.Unlock()
			return failed(err)
		}
	}
	at, stale, err := s.take()
	if err != nil {
		s.mu.Unlock()
		return failed(err)
	}
	s.seq++
	r := mempool.Record{Extent: *x, Seq: s.seq, PayloadBytes: s.info.Identity.Layout.Bytes(x)}
	s.mu.Unlock()

	err = s.medium.Write(w, at, stale, j, &r)
	if err == nil && j.Op.Sum != 0 && j.Op.Sum != r.PayloadSum {
		err = fmt.Errorf("%w: %s has checksum %x on its way, not %x", mempool.ErrCorrupt, x.Key.Short(), r.PayloadSum, j.Op.Sum)
	}
	if parent != nil {
		<-parent.Left()
	}
	s.mu.Lock()
	if err == nil {
		err = s.index.CanAdd(x)
	}
	if err == nil && !j.Commit() {
		err = ErrEnded
	}
	added := false
	if err == nil {
		added, err = s.index.Add(x, s.info.SlotBytes, at)
	}
	if added {
		s.slots[at] = slot{seq: r.Seq, sum: r.PayloadSum}
		s.mu.Unlock()
		return mempool.Done{Bytes: r.PayloadBytes, Sum: r.PayloadSum}
	}
	s.mu.Unlock()
	s.erase(w, at)
	return failed(err)
}

// settled ends the time in which children may wait for a put: when it is known.
func (s *Store) settled(k mempool.Key) {
	s.mu.Lock()
	delete(s.pending, k)
	s.mu.Unlock()
}

// take takes a free slot, of a medium that may have to grow. The lock is held, and let go
// while it grows.
func (s *Store) take() (at int32, stale bool, err error) {
	if len(s.free) == 0 {
		s.mu.Unlock()
		s.grow.Lock()
		s.mu.Lock()
		if have := int32(len(s.slots)); len(s.free) == 0 && have < s.most {
			s.mu.Unlock()
			var now int32
			now, err = s.medium.Grow(have)
			s.mu.Lock()
			now = min(now, s.most)
			for i := now - 1; i >= have; i-- { // the first slots first: neighbours on the disk
				s.free = append(s.free, i)
			}
			s.slots = append(s.slots, make([]slot, max(0, now-have))...)
		}
		s.grow.Unlock()
	}
	n := len(s.free) - 1
	switch {
	case n < 0 && err != nil:
		return 0, false, fmt.Errorf("%w: %w", mempool.ErrFull, err)
	case n < 0:
		return 0, false, fmt.Errorf("%w: %d slots", mempool.ErrFull, s.most)
	}
	at, s.free = s.free[n], s.free[:n]
	stale = s.slots[at].stale
	s.slots[at].stale = true // until a record or an erasure
	return at, stale, nil
}

// erase makes a slot free that no record has.
func (s *Store) erase(w int, at int32) {
	err := s.medium.Erase(w, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[at] = slot{stale: err != nil}
	s.free = append(s.free, at)
}

// get reads an extent. One that can't be read goes, with all below it.
func (s *Store) get(w int, j *ops.Job) mempool.Done {
	want, l := &j.Op.Extent, s.info.Identity.Layout
	s.mu.Lock()
	x, ok := s.index.Extent(want.Key)
	if !ok || l.SharedPages(&x, want) != l.Pages(want) {
		s.mu.Unlock()
		return failed(mempool.ErrMiss)
	}
	at, _ := s.index.Place(x.Key)
	r := s.record(&x)
	s.slots[at].readers++
	s.index.Touch(x.Key)
	s.mu.Unlock()

	err := s.medium.Read(w, at, j, &r)

	var gone []mempool.Hit
	s.mu.Lock()
	if now, ok := s.index.Place(x.Key); err != nil && err != ErrEnded && ok && now == at {
		gone = s.index.RemoveTree(x.Key, nil)
	}
	s.mu.Unlock()
	s.left(w, at)
	d := mempool.Done{Err: err}
	for _, g := range gone {
		s.leave(w, g.Place)
		d.Gone = append(d.Gone, g.Key)
	}
	if err == nil {
		d.Bytes, d.Sum = l.Bytes(want), r.PayloadSum
	}
	return d
}

// left notes that a reader is done with a slot; the last one erases what is leaving.
func (s *Store) left(w int, at int32) {
	s.mu.Lock()
	s.slots[at].readers--
	last := s.slots[at].readers == 0 && s.slots[at].leaving
	s.mu.Unlock()
	if last {
		s.erase(w, at)
	}
}

// leave frees a slot whose record is out of the index, now or after its last reader.
func (s *Store) leave(w int, at int32) {
	s.mu.Lock()
	s.slots[at].leaving = true
	read := s.slots[at].readers > 0
	s.mu.Unlock()
	if !read {
		s.erase(w, at)
	}
}

func (s *Store) drop(w int, j *ops.Job) mempool.Done {
	s.mu.Lock()
	if !j.Commit() {
		s.mu.Unlock()
		return failed(ErrEnded)
	}
	at, err := s.index.Remove(j.Op.Extent.Key)
	s.mu.Unlock()
	if err == nil {
		s.leave(w, at)
	}
	return failed(err)
}
