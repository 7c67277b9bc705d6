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

// leaseRounds is how many rounds a lease outlives the last sign of its keeper.
const leaseRounds = 3

// hold renews the lease, or takes it if nobody has it. All times are those of files in the
// directory, so processes whose clocks differ agree.
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
		// A rename over it renews it with the time of the file system.
		k.has = true
		return os.Rename(tmp, k.lease)
	case age < leaseRounds*k.s.cfg.Round:
		return nil
	default:
		if err := k.takeAway(now.ModTime()); err != nil {
			return err
		}
	}
	// A link fails if the name is there, on network file systems too.
	switch err := os.Link(tmp, k.lease); {
	case err == nil:
		k.has = true
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	return nil
}

// read reads the lease: whose it is, and how long ago it was renewed.
func (k *keeper) read(now time.Time) (owner string, age time.Duration, err error) {
	st, err := os.Stat(k.lease)
	if err != nil {
		return "", 0, err
	}
	b, err := os.ReadFile(k.lease)
	return strings.TrimSpace(string(b)), now.Sub(st.ModTime()), err
}

// takeAway removes a lease that has ended. If another process has renewed it meanwhile,
// it is put back.
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

// release gives the lease back, if this store has it.
func (k *keeper) release() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if owner, _, err := k.read(time.Now()); err == nil && owner == k.owner {
		return os.Remove(k.lease)
	}
	return nil
}

// tmpAge is how old a temporary file may grow: of a process that was killed, by then.
const tmpAge = time.Hour

// sweep removes the temporary files that killed processes left.
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
