package dirmem

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
)

// leaseRounds is the number of Config.Round for which a lease lasts after its last renewal.
const leaseRounds = 3

// hold renews the lease, or takes it if it is free or has ended. It compares only modification
// times of files in the directory, so processes with different clocks agree.
func (k *keeper) hold() error {
	k.has = false
	tmp := filepath.Join(k.s.dir, "tmp", blockio.TempPrefix+k.owner+"-lease")
	if err := os.WriteFile(tmp, []byte(k.owner+"\n"), blockio.FileMode); err != nil {
		return err
	}
	defer os.Remove(tmp)
	now, err := os.Stat(tmp)
	if err != nil {
		return err
	}
	switch owner, age, err := k.read(now.ModTime()); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case owner == k.owner:
		// Renaming a new file over the lease renews it with the file system's time.
		k.has = true
		return os.Rename(tmp, k.lease)
	case age < leaseRounds*k.s.cfg.Round:
		return nil
	default:
		if err := k.takeAway(now.ModTime()); err != nil {
			return err
		}
	}
	// Link fails if the name exists, also on network file systems, so only one process succeeds.
	switch err := os.Link(tmp, k.lease); {
	case err == nil:
		k.has = true
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	return nil
}

// read returns the owner of the lease and the time from its last renewal to now. It fails with
// fs.ErrNotExist if there is no lease.
func (k *keeper) read(now time.Time) (owner string, age time.Duration, err error) {
	st, err := os.Stat(k.lease)
	if err != nil {
		return "", 0, err
	}
	b, err := os.ReadFile(k.lease)
	return strings.TrimSpace(string(b)), now.Sub(st.ModTime()), err
}

// takeAway removes a lease that has ended at the time now. It first renames the lease and checks its
// age again. If another process has renewed the lease in between, takeAway puts it back.
func (k *keeper) takeAway(now time.Time) error {
	aside := filepath.Join(k.s.dir, "tmp", blockio.TempPrefix+k.owner+"-ended")
	if err := os.Rename(k.lease, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process was first
		}
		return err
	}
	defer os.Remove(aside)
	st, err := os.Stat(aside)
	if err == nil && now.Sub(st.ModTime()) < leaseRounds*k.s.cfg.Round {
		_ = os.Link(aside, k.lease)
	}
	return err
}

// release removes the lease if this store has it.
func (k *keeper) release() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if owner, _, err := k.read(time.Now()); err == nil && owner == k.owner {
		return os.Remove(k.lease)
	}
	return nil
}

// tmpAge is the age after which sweep removes a temporary file, because the process that wrote it was
// probably killed.
const tmpAge = time.Hour

// sweep removes temporary files older than tmpAge.
func (k *keeper) sweep() error {
	dir := filepath.Join(k.s.dir, "tmp")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > tmpAge {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}
