package diskmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/notes"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
)

// maxNotes bounds the bytes of all notes of a directory: some thousand sessions of 16,000 tokens.
const maxNotes = 256 << 20

// Notes implements mempool.Noter.
func (m *medium) Notes() mempool.Notes { return m.notes }

// Open opens the directory of c.Identity below c.Dir, creating it if needed, and recovers its
// records. It fails with mempool.ErrLocked while another process has it open.
func Open(c Config) (*slotted.Store, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dir, others, err := blockio.Place(c.Dir, blockio.Disk, &c.Identity, c.Sealer, c.Inject)
	if err != nil {
		return nil, fmt.Errorf("diskmem: %w", err)
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, fmt.Errorf("diskmem: %s: %w", dir, err)
	}
	m, err := newMedium(&c, dir, lock)
	if err != nil {
		return nil, fmt.Errorf("diskmem: %w", errors.Join(err, m.closeFiles()))
	}
	found, warnings, err := m.load(&c)
	if err != nil {
		return nil, fmt.Errorf("diskmem: %w", errors.Join(err, m.closeFiles()))
	}
	info := mempool.StoreInfo{Tier: kv.TierDisk, Identity: c.Identity, Dir: c.Dir, CapacityBytes: int64(m.most) * int64(m.slotBytes),
		SlotBytes: m.slotBytes, MaxOps: c.MaxOps, Durable: true, Others: others}
	info.Warnings = slices.Concat(blockio.Exposed(c.Dir, dir), blockio.Counterpart(c.Dir, c.Identity), warnings)
	info.Direct = blockio.Direct(filepath.Join(dir, blockio.IdentityFile))
	if m.notes, err = notes.Open(filepath.Join(dir, "notes"), m.format, maxNotes, c.Inject); err != nil {
		return nil, fmt.Errorf("diskmem: %w", errors.Join(err, m.closeFiles()))
	}
	s := slotted.New(slotted.Config{Info: info, Workers: c.Workers}, m)
	s.Load(int32(len(m.places)), found, func(slot int32) bool { return m.stale[slot] })
	m.stale = nil
	return s, nil
}

// load opens the files of slots, finds their records and adapts the number of slots to c.Bytes.
func (m *medium) load(c *Config) (found []slotted.Placed, warnings []string, err error) {
	if warnings, err = m.openFiles(); err != nil {
		return nil, nil, err
	}
	if found, err = m.recover(); err != nil {
		return nil, nil, err
	}
	found, beyond, err := m.resize(found, c.Shrink)
	if err != nil {
		return nil, nil, err
	}
	before, err := blockio.Resize(m.dir, c.Bytes, c.Shrink || beyond == 0, m.in)
	switch {
	case err != nil:
		return nil, nil, err
	case beyond > 0 && c.Shrink:
		warnings = append(warnings, fmt.Sprintf("%s: its size is %d bytes now, so %d extents were dropped", m.dir, c.Bytes, beyond))
	case beyond > 0:
		warnings = append(warnings, fmt.Sprintf("%s: %d extents do not fit into %d bytes, so its size stays %d bytes; --kv-shrink drops them",
			m.dir, beyond, c.Bytes, int64(m.most)*int64(m.slotBytes)))
	case before > c.Bytes:
		warnings = append(warnings, fmt.Sprintf("%s: its size was %d bytes and is %d bytes now; no extent was dropped", m.dir, before, c.Bytes))
	}
	return found, warnings, nil
}

// Lock locks a directory against other processes until the returned file is closed or this process
// ends. flag is os.O_CREATE to make that file if there is none, or else 0; then Lock fails with
// fs.ErrNotExist. It fails with mempool.ErrLocked if another process has the lock.
func Lock(dir string, flag int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|flag, blockio.FileMode)
	if err != nil {
		return nil, err
	}
	ok, err := blockio.TryLock(f)
	if err == nil && !ok {
		err = mempool.ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// takeLock locks the directory of a store. It also removes temporary files that a killed process left.
func takeLock(dir string) (*os.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	f, err := Lock(dir, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // with the lock held, no other process is writing them
		if strings.HasPrefix(e.Name(), blockio.TempPrefix) {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return f, nil
}
