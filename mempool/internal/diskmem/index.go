package diskmem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
)

func (m *medium) indexPath() string { return filepath.Join(m.dir, "index") }

// indexMagic begins an index. The number of files and the number of records follow (u32 each). For
// each file it has the number in its name and the number of its slots (u32 each), and the time of
// its last change in nanoseconds (u64); for each record its file, as an index in the list before,
// its slot in that file, the length of its header (u32 each), and the header. XXH3-64 of all bytes
// before is at the end. The times show that a file was replaced. With a key all of it is sealed, which
// adds at most indexSeal bytes.
const (
	indexMagic = "CPPCKV2\n"
	indexSeal  = 1 << 10
)

// Flush implements slotted.Medium. It syncs the slots and then writes the index, unless a slot is
// changing or has changed meanwhile. Without an index, the next Open reads the headers.
func (m *medium) Flush(_ int, contents func() ([]slotted.Placed, bool)) error {
	m.mu.Lock()
	changes, files, done := m.changes, slices.Clone(m.files), m.indexed
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active > 0 || m.changes != changes {
		return nil
	}
	b, err := m.appendIndex(nil, records)
	if err == nil {
		b, err = m.format.SealIndex(b)
	}
	if err == nil {
		err = blockio.Replace(m.indexPath(), b, m.in)
	}
	if blockio.NoRoom(err) {
		return nil // the headers have all that the index has
	} else if err != nil {
		return fmt.Errorf("diskmem: writing the index: %w", err)
	}
	m.indexed = true
	return nil
}

// appendIndex appends the index of the records to b. The lock is held.
func (m *medium) appendIndex(b []byte, records []slotted.Placed) ([]byte, error) {
	le, plain := binary.LittleEndian, m.format.Unsealed()
	b = append(b, indexMagic...)
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(m.files))), uint32(len(records)))
	for _, f := range m.files {
		changed, err := f.Changed()
		if err != nil {
			return nil, err
		}
		b = le.AppendUint32(le.AppendUint32(b, uint32(f.number)), uint32(f.slots))
		b = le.AppendUint64(b, uint64(changed.UnixNano()))
	}
	for i := range records {
		p := m.places[records[i].Slot]
		b = le.AppendUint32(le.AppendUint32(b, uint32(p.file)), uint32(p.at))
		at := len(b)
		b = plain.AppendHeader(append(b, 0, 0, 0, 0), &records[i].Record)
		le.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	return le.AppendUint64(b, xxh3.Hash(b)), nil
}

// recover finds the records in the open files: from the index if it is valid and names these files,
// otherwise from the headers.
func (m *medium) recover() ([]slotted.Placed, error) {
	m.stale = make([]bool, len(m.places))
	limit := indexSeal + 24 + 16*len(m.files) + len(m.places)*(12+m.format.HeaderBytes())
	b, err := blockio.ReadSmall(m.indexPath(), limit, nil)
	if err == nil || errors.Is(err, blockio.ErrTooLarge) || errors.Is(err, blockio.ErrNotRegular) {
		plain, err := m.format.OpenIndex(b)
		if found, ok := m.parseIndex(plain); err == nil && ok && m.confirm(found) {
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

// parseIndex parses an index; ok is false unless all of it is valid and its files are the open files.
func (m *medium) parseIndex(b []byte) (found []slotted.Placed, ok bool) {
	le, plain := binary.LittleEndian, m.format.Unsealed()
	if len(b) < 24 || string(b[:8]) != indexMagic || xxh3.Hash(b[:len(b)-8]) != le.Uint64(b[len(b)-8:]) {
		return nil, false
	}
	files, n := le.Uint32(b[8:]), le.Uint32(b[12:])
	b = b[16 : len(b)-8]
	if int64(files) != int64(len(m.files)) || len(b) < 16*int(files) {
		return nil, false
	}
	first := make([]int32, files) // slot 0 of each file
	slots := int32(0)
	for i, f := range m.files {
		changed, err := f.Changed()
		if err != nil || le.Uint32(b) != uint32(f.number) || le.Uint32(b[4:]) != uint32(f.slots) || le.Uint64(b[8:]) != uint64(changed.UnixNano()) {
			return nil, false
		}
		first[i] = slots
		slots += f.slots
		b = b[16:]
	}
	for ; n > 0; n-- {
		if len(b) < 12 {
			return nil, false
		}
		file, at, length := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
		if b = b[12:]; int64(length) > int64(len(b)) || file >= files || at >= uint32(m.files[file].slots) {
			return nil, false
		}
		r, err := plain.ParseHeader(b[:length])
		if err != nil {
			return nil, false
		}
		found, b = append(found, slotted.Placed{Slot: first[file] + int32(at), Record: r}), b[length:]
	}
	return found, len(b) == 0
}

// confirm reports whether the headers on the disk agree with the index: it reads one header of each
// file. Files that were swapped may have equal times.
func (m *medium) confirm(found []slotted.Placed) bool {
	seen := make([]bool, len(m.files))
	for i := range found {
		p := &found[i]
		if file := m.places[p.Slot].file; seen[file] {
			continue
		} else {
			seen[file] = true
		}
		r, err := m.header(p.Slot)
		if err != nil || r.Key != p.Record.Key || r.Seq != p.Record.Seq || r.PayloadSum != p.Record.PayloadSum {
			return false
		}
	}
	return true
}

// header reads the header of a slot into the first buffer. The record is valid until the next call.
func (m *medium) header(slot int32) (record.Record, error) {
	f, at := m.at(slot)
	buf := m.buffers[0][:m.format.HeaderBytes()]
	if err := f.ReadAt(buf, at); err != nil {
		return record.Record{}, err
	}
	return m.format.ParseHeader(buf)
}

// scan reads the header of every slot. A slot is stale if its header can't be read, or is neither
// zero nor a valid header of this identity.
func (m *medium) scan() ([]slotted.Placed, error) {
	var found []slotted.Placed
	buf := m.buffers[0][:m.format.HeaderBytes()]
	for slot := range int32(len(m.places)) {
		r, err := m.header(slot)
		if err == nil {
			r.Extent = r.Clone()
			found = append(found, slotted.Placed{Slot: slot, Record: r})
		} else {
			m.stale[slot] = !errors.Is(err, mempool.ErrMiss) || bytes.Count(buf, []byte{0}) != len(buf)
		}
	}
	return found, nil
}
