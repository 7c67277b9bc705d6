// Package slotted is a mempool.Store over slots of one size: it owns what is in which
// slot, and the order of operations. The bytes are those of a [Medium], host memory or a
// disk. It never evicts: a full store refuses.
//
//	s := slotted.New(slotted.Config{…}, medium)
//	err := s.Load(slot, record) // what a medium that outlives the process found
package slotted

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/internal/mempool/ops"
	"github.com/coppice-llm/coppice/mempool"
)

// Medium keeps bytes in slots. Its methods are called by workers, with different slots at
// once; w is the worker's number.
type Medium interface {
	// Write writes a record to a slot: the job's pages, of which it sets r.PayloadSum. A
	// stale slot still has the header of another record. With an error the slot's
	// content is undefined.
	Write(w int, slot int32, stale bool, j *ops.Job, r *mempool.Record) error
	// Read checks that the slot has exactly the record r, and gives the job its first pages.
	Read(w int, slot int32, j *ops.Job, r *mempool.Record) error
	// Erase makes a slot one without a record.
	Erase(w int, slot int32) error
	// Grow makes room for more slots, after the first have, and returns how many there
	// are then. It is called by one worker at a time.
	Grow(have int32) (int32, error)
	// Flush makes what is written durable. It may keep what contents returns.
	Flush(w int, contents func() []Placed) error
	// Close gives all back, after the last call of another method.
	Close(contents func() []Placed) error
}

// Placed is a record and its slot.
type Placed struct {
	Slot   int32
	Record mempool.Record
}

// ErrEnded is returned by a Medium when the job was given up while it was at it.
var ErrEnded = errors.New("slotted: the operation was given up")

// Config is what a store is made of.
type Config struct {
	Info    mempool.StoreInfo // CapacityBytes counts whole slots
	Workers int
}

// Store implements mempool.Store.
type Store struct {
	info   mempool.StoreInfo
	medium Medium
	queue  *ops.Queue

	mu      sync.Mutex
	index   *mempool.Index // places are slots
	slots   []slot         // those that there are so far
	free    []int32
	most    int32 // slots that there may be
	pending map[mempool.Key]*ops.Job
	seq     uint64
	grow    sync.Mutex // held while the medium grows
}

// slot is the state of one place.
type slot struct {
	seq, sum uint64
	readers  int
	stale    bool // has a header that is of no record
	leaving  bool // no record's any more, free when the last reader has left
}

// New makes a store whose slots are all free; Load fills them before the first Submit.
func New(c Config, m Medium) *Store {
	s := &Store{info: c.Info, medium: m, index: mempool.NewIndex(c.Info.Identity.Layout), pending: map[mempool.Key]*ops.Job{}}
	s.most = int32(c.Info.CapacityBytes / int64(c.Info.SlotBytes))
	s.info.CapacityBytes = int64(s.most) * int64(c.Info.SlotBytes)
	s.queue = ops.New(c.Workers, c.Info.MaxOps, s.run)
	return s
}

// Load takes over the slots that a medium has: records, and whether the header of a slot
// without one is stale. A record whose parent is not among them is left out, as is the
// older of two with one key. have is the number of slots.
func (s *Store) Load(have int32, records []Placed, stale func(slot int32) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = make([]slot, have)
	taken := make([]bool, have)
	slices.SortFunc(records, func(a, b Placed) int {
		return cmp.Or(cmp.Compare(a.Record.Start, b.Record.Start), cmp.Compare(b.Record.Seq, a.Record.Seq))
	})
	for i := range records {
		p := &records[i]
		s.seq = max(s.seq, p.Record.Seq)
		if s.index.Has(p.Record.Key) {
			s.slots[p.Slot].stale = true
		} else if _, err := s.index.Add(&p.Record.Extent, s.info.SlotBytes, p.Slot); err != nil {
			s.slots[p.Slot].stale = true
		} else {
			taken[p.Slot] = true
			s.slots[p.Slot] = slot{seq: p.Record.Seq, sum: p.Record.PayloadSum}
		}
	}
	slices.SortFunc(records, func(a, b Placed) int { return cmp.Compare(a.Record.Seq, b.Record.Seq) })
	for i := range records { // recency as it was written
		s.index.Touch(records[i].Record.Key)
	}
	for i := have - 1; i >= 0; i-- {
		if !taken[i] {
			s.slots[i].stale = s.slots[i].stale || stale(i)
			s.free = append(s.free, i)
		}
	}
}

// Info implements mempool.Store.
func (s *Store) Info() mempool.StoreInfo { return s.info }

// Ready implements mempool.Store.
func (s *Store) Ready() <-chan struct{} { return s.queue.Ready() }

// Poll implements mempool.Store.
func (s *Store) Poll(dst []mempool.Done) []mempool.Done { return s.queue.Poll(dst) }

// Cancel implements mempool.Store.
func (s *Store) Cancel(id mempool.OpID) { s.queue.Cancel(id) }

// Submit implements mempool.Store.
func (s *Store) Submit(op mempool.Op) error {
	if err := s.info.Identity.CheckOp(&op); err != nil {
		return err
	}
	s.mu.Lock() // so that puts are known in the order in which they begin
	defer s.mu.Unlock()
	j, err := s.queue.Submit(op)
	if err == nil && op.Kind == mempool.Put {
		if k := op.Extent.Key; s.pending[k] == nil || s.pending[k].HasLeft() {
			s.pending[k] = j
		}
		if len(s.pending) > 2*s.info.MaxOps { // puts that were given up while they waited
			maps.DeleteFunc(s.pending, func(_ mempool.Key, j *ops.Job) bool { return j.HasLeft() })
		}
	}
	return err
}

// putBefore is the put of an extent that was submitted before j and has not ended.
func (s *Store) putBefore(k mempool.Key, j *ops.Job) *ops.Job {
	if p := s.pending[k]; p != nil && p.Turn < j.Turn && !p.HasLeft() {
		return p
	}
	return nil
}

// Contents implements mempool.Store.
func (s *Store) Contents(dst []mempool.Extent) []mempool.Extent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Contents(dst)
}

// Metrics implements mempool.Store.
func (s *Store) Metrics() mempool.StoreMetrics {
	m := s.queue.Metrics()
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Extents, m.Bytes, m.CapacityBytes = s.index.Len(), s.index.Bytes(), s.info.CapacityBytes
	return m
}

// Close implements mempool.Store.
func (s *Store) Close() error {
	if !s.queue.Close() {
		return nil
	}
	return s.medium.Close(s.placed)
}

// Check walks the ledger of slots: each holds one record, or is free, or is leaving.
func (s *Store) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.index.Check(); err != nil {
		return err
	}
	owner := make([]bool, len(s.slots))
	for _, x := range s.index.Contents(nil) {
		p, _ := s.index.Place(x.Key)
		if owner[p] {
			return fmt.Errorf("slotted: slot %d has two owners", p)
		}
		owner[p] = true
	}
	for _, p := range s.free {
		if owner[p] {
			return fmt.Errorf("slotted: slot %d is free and has an owner, or is free twice", p)
		}
		owner[p] = true
	}
	return nil
}

func (s *Store) placed() []Placed {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Placed
	for _, x := range s.index.Contents(nil) {
		all = append(all, Placed{Record: s.record(&x)})
		all[len(all)-1].Slot, _ = s.index.Place(x.Key)
	}
	return all
}

// record is that of an extent in the index.
func (s *Store) record(x *mempool.Extent) mempool.Record {
	p, _ := s.index.Place(x.Key)
	return mempool.Record{Extent: *x, Seq: s.slots[p].seq, PayloadSum: s.slots[p].sum, PayloadBytes: s.info.Identity.Layout.Bytes(x)}
}
