package slotted

import (
	"fmt"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/ops"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// run executes one operation on worker w.
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

// put writes an extent and then adds it to the index. If a put of the parent was submitted earlier
// and has not ended, it waits for that put before it adds the extent.
func (s *Store) put(w int, j *ops.Job) mempool.Done {
	x := &j.Op.Extent
	if first := s.PutBefore(x.Key, j); first != nil { // an earlier put of the same extent
		<-first.Left()
	}
	parent := s.PutBefore(x.Parent, j)
	s.mu.Lock()
	if s.index.Has(x.Key) {
		s.index.Touch(x.Key)
		s.mu.Unlock()
		return mempool.Done{}
	}
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
	r := record.Record{Extent: *x, Seq: s.seq, PayloadBytes: s.info.Identity.Layout.Bytes(x)}
	s.mu.Unlock()

	err = s.medium.Write(w, at, stale, j, &r)
	if err == nil && j.Op.Sum != 0 && j.Op.Sum != r.PayloadSum {
		err = fmt.Errorf("%w: %s was put with checksum %x, want %x", mempool.ErrCorrupt, x.Key.Short(), r.PayloadSum, j.Op.Sum)
	}
	if parent != nil {
		<-parent.Left()
	}
	s.mu.Lock()
	if err == nil {
		err = s.index.CanAdd(x)
	}
	if err == nil && !j.Commit() {
		err = ops.ErrEnded
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

// take takes a free slot; if there is none, it grows the medium. It returns the slot's number, and
// reports whether the slot may have a header of another record. It fails with ErrFull if there is
// no room. The caller holds s.mu; take releases it while the medium grows.
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
			for i := now - 1; i >= have; i-- { // taken from the end: slots are used in ascending order
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
	s.slots[at].stale = true // until it has a record or has been erased
	return at, stale, nil
}

// erase erases the record of a slot that is not in the index, and makes the slot free. If the medium
// fails, the slot is free but stale.
func (s *Store) erase(w int, at int32) {
	err := s.medium.Erase(w, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[at] = slot{stale: err != nil}
	s.free = append(s.free, at)
}

// get reads an extent. If the read fails, the extent and its descendants are removed and reported
// as gone, unless the job has been given up: its Done exists and can report nothing.
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
	if err != nil && !j.Commit() {
		err = ops.ErrEnded
	}
	var gone []mempool.Hit
	s.mu.Lock()
	if now, ok := s.index.Place(x.Key); err != nil && err != ops.ErrEnded && ok && now == at {
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

// left ends a reader's use of a slot. The last reader of a leaving slot erases it.
func (s *Store) left(w int, at int32) {
	s.mu.Lock()
	s.slots[at].readers--
	last := s.slots[at].readers == 0 && s.slots[at].leaving
	s.mu.Unlock()
	if last {
		s.erase(w, at)
	}
}

// leave frees a slot whose record was removed from the index, now or after its last reader.
func (s *Store) leave(w int, at int32) {
	s.mu.Lock()
	s.slots[at].leaving = true
	read := s.slots[at].readers > 0
	s.mu.Unlock()
	if !read {
		s.erase(w, at)
	}
}

// drop removes an extent from the index, which refuses one with children, and frees its slot. It
// commits first: once the extent has left the index, the operation must not be given up.
func (s *Store) drop(w int, j *ops.Job) mempool.Done {
	s.mu.Lock()
	if !j.Commit() {
		s.mu.Unlock()
		return failed(ops.ErrEnded)
	}
	at, err := s.index.Remove(j.Op.Extent.Key)
	s.mu.Unlock()
	if err == nil {
		s.leave(w, at)
	}
	return failed(err)
}
