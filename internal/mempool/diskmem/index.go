package diskmem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/internal/mempool/slotted"
	"github.com/coppice-llm/coppice/mempool"
)

func (m *medium) indexPath() string { return filepath.Join(m.dir, "index") }

// indexMagic begins an index. The number of slots and the number of records follow (u32 each);
// then for each record its slot and the length of its header (u32 each) and the header; and at
// the end XXH3-64 of all bytes before.
const indexMagic = "CPPCKVI\n"

// Flush implements slotted.Medium. It syncs the slots and then writes the index, unless a slot is
// changing or has changed meanwhile. Without an index, the next Open reads the headers.
func (m *medium) Flush(_ int, contents func() ([]slotted.Placed, bool)) error {
	m.mu.Lock()
	changes, files, slots, done := m.changes, slices.Clone(m.files), m.slots(), m.indexed
	m.mu.Unlock()
	if done {
		return nil
	}
	records, whole := contents()
	for _, f := range files {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("diskmem: syncing %s: %w", f.Name(), err)
		}
	}
	if !whole {
		return nil
	}
	b := []byte(indexMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(slots))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(records)))
	for i := range records {
		b = binary.LittleEndian.AppendUint32(b, uint32(records[i].Slot))
		at := len(b)
		b = m.format.AppendHeader(append(b, 0, 0, 0, 0), &records[i].Record)
		binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	b = binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active > 0 || m.changes != changes {
		return nil
	}
	if err := blockio.Replace(m.indexPath(), b, m.in); err != nil {
		return fmt.Errorf("diskmem: writing the index: %w", err)
	}
	m.indexed = true
	return nil
}

// recover opens the existing files, up to most slots, and finds the records: from the index if it
// exists and is valid, otherwise from the headers.
func (m *medium) recover(most int32) ([]slotted.Placed, error) {
	if err := m.openFiles(most); err != nil {
		return nil, err
	}
	m.stale = make([]bool, m.slots())
	limit := 24 + int(m.slots())*(8+m.format.HeaderBytes())
	b, err := blockio.ReadSmall(m.indexPath(), limit, nil)
	if err == nil || errors.Is(err, blockio.ErrTooLarge) || errors.Is(err, blockio.ErrNotRegular) {
		if found, ok := m.parseIndex(b); ok {
			m.indexed = true
			return found, nil
		}
		if err := os.Remove(m.indexPath()); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return m.scan()
}

// openFiles opens the files of slots until they have most slots. It truncates the file in which slot
// most would be, and removes all files after that. It also removes a file that has no whole slot, and
// all files after it; their records are lost.
func (m *medium) openFiles(most int32) error {
	left := most
	for i := 0; ; i++ {
		f, err := blockio.Open(m.path(i), os.O_RDWR, nil)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		size, err := f.Size()
		if err != nil {
			f.Close()
			return err
		}
		n := min(int32(min(size/int64(m.slotBytes), 1<<31-1)), left)
		if n == 0 {
			f.Close()
			return m.removeFrom(i)
		}
		if want := int64(n) * int64(m.slotBytes); want != size {
			if err := os.Truncate(m.path(i), want); err != nil {
				f.Close()
				return err
			}
		}
		f = f.Inject(m.in)
		m.files, m.have = append(m.files, f), append(m.have, n)
		left -= n
	}
}

// removeFrom removes file i of the slots, counted from 0, and all files after it.
func (m *medium) removeFrom(i int) error {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "slots-") && e.Name() >= filepath.Base(m.path(i)) {
			if err := os.Remove(filepath.Join(m.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseIndex parses an index; ok is false unless all of it is valid.
func (m *medium) parseIndex(b []byte) (found []slotted.Placed, ok bool) {
	if len(b) < 24 || string(b[:8]) != indexMagic || xxh3.Hash(b[:len(b)-8]) != binary.LittleEndian.Uint64(b[len(b)-8:]) ||
		binary.LittleEndian.Uint32(b[8:]) != uint32(m.slots()) {
		return nil, false
	}
	n := binary.LittleEndian.Uint32(b[12:])
	for b = b[16 : len(b)-8]; n > 0; n-- {
		if len(b) < 8 {
			return nil, false
		}
		slot, length := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if b = b[8:]; int(length) > len(b) || slot >= uint32(m.slots()) {
			return nil, false
		}
		r, err := m.format.ParseHeader(b[:length])
		if err != nil {
			return nil, false
		}
		found, b = append(found, slotted.Placed{Slot: int32(slot), Record: r}), b[length:]
	}
	return found, len(b) == 0
}

// scan reads the header of every slot. A slot is stale if its header can't be read, or is neither
// zero nor a valid header of this identity.
func (m *medium) scan() ([]slotted.Placed, error) {
	var found []slotted.Placed
	buf := m.buffers[0][:m.format.HeaderBytes()]
	for slot := range m.slots() {
		f, at := m.at(slot)
		if err := f.ReadAt(buf, at); err != nil {
			m.stale[slot] = true
			continue
		}
		r, err := m.format.ParseHeader(buf)
		if err == nil {
			r.Extent = r.Clone()
			found = append(found, slotted.Placed{Slot: slot, Record: r})
		} else {
			m.stale[slot] = !errors.Is(err, mempool.ErrMiss) || bytes.Count(buf, []byte{0}) != len(buf)
		}
	}
	return found, nil
}
