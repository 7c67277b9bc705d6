package diskmem

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/notes"
	"github.com/coppice-llm/coppice/mempool/internal/ops"
	"github.com/coppice-llm/coppice/mempool/internal/record"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
)

// medium holds the files of slots. It implements slotted.Medium.
type medium struct {
	dir       string
	format    record.Format
	slotBytes int
	perFile   int32 // slots of a full file
	most      int32 // most slots in all files
	lock      *os.File
	in        *blockio.Injector
	notes     *notes.Dir
	buffers   [][]byte // room for a slot, by worker
	stale     []bool   // by slot, after recover: the header must be erased before use
	now       func() time.Time
	refused   error     // of the latest Grow, nil if it succeeded
	retry     time.Time // no Grow tries again before

	mu      sync.Mutex
	files   []segment
	places  []place // by slot
	changes uint64  // writes, erasures and growths that have begun
	active  int     // those in progress
	indexed bool    // the index file exists
}

func newMedium(c *Config, dir string, lock *os.File) (*medium, error) {
	m := &medium{dir: dir, format: record.FormatOf(&c.Identity, c.Sealer), lock: lock, in: c.Inject, now: c.now}
	m.slotBytes = m.format.SlotBytes()
	m.most = int32(min(c.Bytes/int64(m.slotBytes), 1<<31-1))
	m.perFile = int32(max(1, min(c.SegmentBytes/int64(m.slotBytes), int64(m.most))))
	for range c.Workers {
		b, err := blockio.Alloc(m.slotBytes)
		if err != nil {
			return m, err
		}
		m.buffers = append(m.buffers, b)
	}
	return m, nil
}

// at returns the file of a slot and its offset there.
func (m *medium) at(slot int32) (*blockio.File, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.places[slot]
	return m.files[p.file].File, int64(p.at) * int64(m.slotBytes)
}

// begin must be called before a change of a slot, and end after it. It removes the index file, which
// would no longer be exact, and fails if it can't.
func (m *medium) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	if m.indexed {
		err := m.in.Do(blockio.Remove, func() error { return os.Remove(m.indexPath()) })
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the index before a change: %w", err)
		}
		m.indexed = false
	}
	m.active++
	return nil
}

func (m *medium) end() {
	m.mu.Lock()
	m.active--
	m.mu.Unlock()
}

// Write implements slotted.Medium. It erases the header if it is stale, writes the pages and then
// the header, so that a header never describes pages that are not there.
func (m *medium) Write(w int, slot int32, stale bool, j *ops.Job, r *record.Record) error {
	if err := m.begin(); err != nil {
		return err
	}
	defer m.end()
	f, at := m.at(slot)
	buf, head := m.buffers[w], m.format.HeaderBytes()
	if stale {
		if err := m.erase(w, f, at); err != nil {
			return err
		}
	}
	buf = buf[:m.format.RecordBytes(r.PayloadBytes)]
	if !j.Pages(func(pages [][]byte) { r.PayloadSum = checksum.Gather(buf[head:], pages) }) {
		return ops.ErrEnded
	}
	if err := m.format.Encode(buf, r); err != nil {
		return err
	}
	if err := f.WriteAt(buf[head:], at+int64(head)); err != nil {
		return err
	}
	return f.WriteAt(buf[:head], at)
}

// Read implements slotted.Medium.
func (m *medium) Read(w int, slot int32, j *ops.Job, r *record.Record) error {
	f, at := m.at(slot)
	buf := m.buffers[w][:m.format.RecordBytes(r.PayloadBytes)]
	if err := f.ReadAt(buf, at); err != nil {
		return err
	}
	got, body, err := m.format.Decode(buf)
	switch {
	case errors.Is(err, mempool.ErrMiss): // the store's index has a record here
		return fmt.Errorf("%w: slot %d has no record", mempool.ErrCorrupt, slot)
	case err != nil:
		return err
	case got.Key != r.Key || got.Seq != r.Seq || got.PayloadSum != r.PayloadSum:
		return fmt.Errorf("%w: slot %d has the record %s", mempool.ErrCorrupt, slot, got.Key.Short())
	}
	return slotted.Deliver(j, body, r)
}

// Erase implements slotted.Medium.
func (m *medium) Erase(w int, slot int32) error {
	if err := m.begin(); err != nil {
		return err
	}
	defer m.end()
	f, at := m.at(slot)
	return m.erase(w, f, at)
}

// erase overwrites the beginning of the header at offset at of f with zeros.
func (m *medium) erase(w int, f *blockio.File, at int64) error {
	zeros := m.buffers[w][:blockio.Align]
	clear(zeros)
	return f.WriteAt(zeros, at)
}

// Close implements slotted.Medium.
func (m *medium) Close(contents func() ([]slotted.Placed, bool)) error {
	err := m.Flush(0, contents)
	return errors.Join(err, m.closeFiles())
}

func (m *medium) closeFiles() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	for _, b := range m.buffers {
		errs = append(errs, blockio.Free(b))
	}
	return errors.Join(append(errs, m.lock.Close())...)
}
