package diskmem

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/internal/mempool/slotted"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// Store is the disk tier. It implements mempool.Store.
type Store struct {
	*slotted.Store
}

// Open opens the directory of c.Identity below c.Dir, creating it if needed, and recovers its
// records. It fails with mempool.ErrLocked while another process has it open.
func Open(c Config) (*Store, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	dir, others, err := blockio.Place(c.Dir, blockio.Disk, &c.Identity, c.Inject)
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
	info := mempool.StoreInfo{Tier: kv.TierDisk, Identity: c.Identity, CapacityBytes: min(c.Bytes, int64(math.MaxInt32)*int64(m.slotBytes)),
		SlotBytes: m.slotBytes, MaxOps: c.MaxOps, Durable: true, Others: others}
	if info.Warnings, err = m.openFiles(); err == nil {
		err = m.cut(m.most)
	}
	var found []slotted.Placed
	if err == nil {
		found, err = m.recover()
	}
	if err != nil {
		return nil, fmt.Errorf("diskmem: %w", errors.Join(err, m.closeFiles()))
	}
	info.Direct = blockio.Direct(filepath.Join(dir, blockio.IdentityFile))
	s := slotted.New(slotted.Config{Info: info, Workers: c.Workers}, m)
	s.Load(int32(len(m.places)), found, func(slot int32) bool { return m.stale[slot] })
	m.stale = nil
	return &Store{Store: s}, nil
}

// takeLock locks the directory against other processes until the file is closed or this process
// ends. It also removes temporary files that a killed process left.
func takeLock(dir string) (*os.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, blockio.FileMode)
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
	for _, e := range entries { // with the lock held, no other process is writing them
		if strings.HasPrefix(e.Name(), blockio.TempPrefix) {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return f, nil
}
