// Package slotted implements mempool.Store over slots of one size. It owns the index of extents and
// their slots, and the order of operations. The bytes are in a [Medium]: host memory or a disk. It
// never evicts: a full store refuses puts.
//
//	s := slotted.New(slotted.Config{…}, medium)
//	s.Load(slots, records, stale) // the contents of a medium that outlives the process
package slotted

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/ops"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// Medium stores bytes in slots. Several workers call its methods at once. They never write or erase a
// slot that another worker uses. w is the worker's number.
type Medium interface {
	// Write and Read fail with ops.ErrEnded if the job was given up during the call.

	// Write writes a record to a slot: the header r and the job's pages. It sets r.PayloadSum.
	// stale reports that the slot may still have the header of another record. After an error
	// the slot's content is undefined.
	Write(w int, slot int32, stale bool, j *ops.Job, r *record.Record) error
	// Read checks that the slot has exactly the record r, and copies its first pages to the job.
	Read(w int, slot int32, j *ops.Job, r *record.Record) error
	// Erase removes the record of a slot.
	Erase(w int, slot int32) error
	// Grow adds slots; have is their number before. It returns the new number of slots. Only one
	// worker calls it at a time.
	Grow(have int32) (int32, error)
	// Flush makes all records durable. contents returns the records in the store's index, and
	// reports whether all other slots are free; then Flush may store the records.
	Flush(w int, contents func() (all []Placed, whole bool)) error
	// Close frees all resources; contents is as for Flush. No other method is called after it.
	Close(contents func() (all []Placed, whole bool)) error
}

// Deliver copies the payload of r, as it was read, to the pages of j, and commits j: the end of a Medium's Read. It fails
// with mempool.ErrCorrupt if the payload is not the one that was written, and with ops.ErrEnded if j was given up.
func Deliver(j *ops.Job, payload []byte, r *record.Record) error {
	var sum uint64
	if !j.Pages(func(pages [][]byte) { sum = checksum.Scatter(pages, payload) }) {
		return ops.ErrEnded
	}
	if len(payload) != r.PayloadBytes || sum != r.PayloadSum {
		return fmt.Errorf("%w: wrong checksum of %s", mempool.ErrCorrupt, r.Key.Short())
	}
	if !j.Commit() {
		return ops.ErrEnded
	}
	return nil
}

// Placed is a record and its slot.
type Placed struct {
	Slot   int32
	Record record.Record
}

// Config configures a store.
type Config struct {
	Info    mempool.StoreInfo // CapacityBytes counts whole slots
	Workers int
}

// Store implements mempool.Store.
type Store struct {
	*ops.Queue
	info   mempool.StoreInfo
	medium Medium

	mu    sync.Mutex
	index *mempool.Index // the place of an extent is its slot
	slots []slot         // the medium's slots so far
	free  []int32
	most  int32      // most slots, by the capacity
	seq   uint64     // latest Record.Seq
	grow  sync.Mutex // held while the medium grows
}

// slot is the state of one slot.
type slot struct {
	seq, sum uint64 // Seq and PayloadSum of its record
	readers  int
	stale    bool // it may have a header of a record that is not in the index
	leaving  bool // its record was removed from the index; it becomes free after the last reader
}

// New returns a store without extents. Load may be called before the first Submit.
func New(c Config, m Medium) *Store {
	s := &Store{info: c.Info, medium: m, index: mempool.NewIndex(c.Info.Identity.Layout)}
	s.most = int32(c.Info.CapacityBytes / int64(c.Info.SlotBytes))
	s.info.CapacityBytes = int64(s.most) * int64(c.Info.SlotBytes)
	s.Queue = ops.New(s.info, c.Workers, s.run)
	return s
}

// Notes implements mempool.Noter: the medium may keep notes.
func (s *Store) Notes() mempool.Notes {
	if m, ok := s.medium.(mempool.Noter); ok {
		return m.Notes()
	}
	return nil
}

// Load initialises the store with the contents of a medium. have is the number of its slots, records
// the records in them. stale reports whether a slot without a record may have a header of another
// record. Load ignores records whose parent is missing, and of records with the same key all but the
// newest. The newest record becomes the most recently used.
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
	for i := range records { // recency in the order of writing
		s.index.Touch(records[i].Record.Key)
	}
	for i := have - 1; i >= 0; i-- {
		if !taken[i] {
			s.slots[i].stale = s.slots[i].stale || stale(i)
			s.free = append(s.free, i)
		}
	}
}

// Contents implements mempool.Store.
func (s *Store) Contents(dst []mempool.Extent) []mempool.Extent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Contents(dst)
}

// Metrics implements mempool.Store.
func (s *Store) Metrics() mempool.StoreMetrics {
	m := s.Queue.Metrics()
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Extents, m.Bytes, m.CapacityBytes = s.index.Len(), s.index.Bytes(), s.info.CapacityBytes
	return m
}

// Close implements mempool.Store.
func (s *Store) Close() error {
	if !s.End() {
		return nil
	}
	return s.medium.Close(s.placed)
}

// Check verifies by a full walk that no slot has two records, has a record and is free, or is free
// twice. A slot that is being written or is leaving has no record and is not free.
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

// placed returns all records with their slots, parents before children. whole reports that no slot
// is being written or is leaving.
func (s *Store) placed() (all []Placed, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.index.Contents(nil) {
		all = append(all, Placed{Record: s.record(&x)})
		all[len(all)-1].Slot, _ = s.index.Place(x.Key)
	}
	return all, len(all)+len(s.free) == len(s.slots)
}

// record returns the record of an extent in the index.
func (s *Store) record(x *mempool.Extent) record.Record {
	p, _ := s.index.Place(x.Key)
	return record.Record{Extent: *x, Seq: s.slots[p].seq, PayloadSum: s.slots[p].sum, PayloadBytes: s.info.Identity.Layout.Bytes(x)}
}
