package dirmem

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// leaseRounds is the number of Config.Round for which a lease lasts after its last renewal.
const leaseRounds = 3

// maxLease bounds the bytes that are read of a lease.
const maxLease = 4096

// hold renews the lease, or takes it if it is free or has ended. It compares only modification
// times of files in the directory, so processes with different clocks agree. It reads the lease before
// it asks for the time. So a lease that was renewed by the file system's clock is never younger than
// that time, and one that is dates from a clock that has changed since.
func (k *keeper) hold() error {
	k.has = false
	owner, last, err := k.read()
	free := errors.Is(err, fs.ErrNotExist)
	if err != nil && !free {
		return err
	}
	tmp := filepath.Join(k.s.dir, "tmp", blockio.TempPrefix+k.owner+"-lease")
	if err := k.mark(tmp); err != nil {
		return err
	}
	defer os.Remove(tmp)
	switch {
	case free:
	case owner == k.owner:
		// Renaming a new file over the lease renews it with the file system's time.
		k.has = true
		return k.s.cfg.Inject.Do(blockio.Rename, func() error { return os.Rename(tmp, k.lease) })
	default:
		if age := k.now.Sub(last.ModTime()); last.Mode().IsRegular() && age >= 0 && age < leaseRounds*k.s.cfg.Round {
			return nil
		}
		if err := k.takeAway(last); err != nil {
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

// mark writes this process's name to a new file and sets now to the time of that file.
func (k *keeper) mark(path string) error {
	err := k.s.cfg.Inject.Do(blockio.Create, func() error {
		return os.WriteFile(path, []byte(k.owner+"\n"), blockio.FileMode)
	})
	var st os.FileInfo
	if err == nil {
		st, err = blockio.Stat(path, k.s.cfg.Inject)
	}
	if err != nil {
		os.Remove(path)
		return err
	}
	k.now = st.ModTime()
	return nil
}

// read returns the owner of the lease and describes its file. The owner is empty if the file's content
// is no name, or if it is no regular file; neither keeps the lease from ending. It fails with
// fs.ErrNotExist if there is no lease.
func (k *keeper) read() (owner string, last os.FileInfo, err error) {
	err = k.s.cfg.Inject.Do(blockio.Lookup, func() (err error) {
		last, err = os.Lstat(k.lease)
		return err
	})
	if err != nil || !last.Mode().IsRegular() {
		return "", last, err
	}
	b, err := blockio.ReadSmall(k.lease, maxLease, k.s.cfg.Inject)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	return strings.TrimSpace(string(b)), last, nil
}

// takeAway removes the lease last, which has ended. It first renames the lease. If another process has
// renewed it since it was read, takeAway puts it back.
func (k *keeper) takeAway(last os.FileInfo) error {
	aside := filepath.Join(k.s.dir, "tmp", blockio.TempPrefix+k.owner+"-ended")
	err := k.s.cfg.Inject.Do(blockio.Rename, func() error { return os.Rename(k.lease, aside) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process was first
	} else if err != nil {
		return err
	}
	defer os.Remove(aside) // a directory with files stays aside
	st, err := os.Lstat(aside)
	if err == nil && (!os.SameFile(st, last) || !st.ModTime().Equal(last.ModTime())) {
		_ = os.Link(aside, k.lease)
	}
	return err
}

// release removes the lease if this store has it.
func (k *keeper) release() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if owner, _, err := k.read(); err == nil && owner == k.owner {
		return os.Remove(k.lease)
	}
	return nil
}

// tmpAge is the age after which sweep removes a temporary file, because the process that wrote it was
// probably killed.
const tmpAge = time.Hour

// sweep removes temporary files older than tmpAge by the file system's clock, and those that are as far
// in its future.
func (k *keeper) sweep() error {
	dir := filepath.Join(k.s.dir, "tmp")
	entries, err := k.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && k.now.Sub(st.ModTime()).Abs() > tmpAge {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}
