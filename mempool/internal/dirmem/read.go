package dirmem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/ops"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// get reads a record. If that fails, the record is gone for this process, unless the job has been
// given up: its Done exists and can report nothing. The file is removed only if its own bytes prove
// that it is damaged.
func (s *Store) get(w int, j *ops.Job) mempool.Done {
	want := &j.Op.Extent
	n := s.name(want.Key)
	if s.hides(n) {
		return mempool.Done{Err: fmt.Errorf("%w: %s could not be read a short time ago", mempool.ErrMiss, want.Key.Short())}
	}
	sum, err := s.fetch(w, j, n)
	switch {
	case err == nil:
		return mempool.Done{Bytes: s.info.Identity.Layout.Bytes(want), Sum: sum}
	case errors.Is(err, fs.ErrNotExist):
		d := mempool.Done{Err: fmt.Errorf("%w: %w", mempool.ErrMiss, err)}
		if s.vanished(n) {
			d.Gone = []mempool.Key{want.Key}
		}
		return d
	case err == ops.ErrEnded || errors.Is(err, mempool.ErrMiss):
		return mempool.Done{Err: err}
	case !j.Commit():
		return mempool.Done{Err: ops.ErrEnded}
	}
	if !errors.Is(err, mempool.ErrCorrupt) || !s.removeDamaged(w, n) {
		s.hide(n)
	}
	return mempool.Done{Err: err, Gone: []mempool.Key{want.Key}}
}

// vanished forgets a record that a get found no file of, and reports whether the store knew it. If the
// file is there after all, the record is hidden: after a failed read it must not be found again.
func (s *Store) vanished(n record.Name) (known bool) {
	s.mu.Lock()
	known = s.known[n] > 0
	s.mu.Unlock()
	if _, err := blockio.Stat(s.path(n), s.cfg.Inject); known && !errors.Is(err, fs.ErrNotExist) {
		s.hide(n)
	} else {
		s.learn(n, 0)
	}
	return known
}

// removeDamaged reads a record a second time, removes it if it is damaged then too, and reports
// whether it is gone. A wrong byte of the first read may come from this process's memory or from its
// connection to the file system, and then the record is sound for others.
func (s *Store) removeDamaged(w int, n record.Name) bool {
	var r record.Record
	st, body, err := s.load(w, n, &r)
	if err == nil && (!s.format.Named(r.Key, n) || checksum.Sum(body) != r.PayloadSum) {
		err = mempool.ErrCorrupt
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true
	case !errors.Is(err, mempool.ErrCorrupt):
		return false
	}
	// Another process may have replaced the file meanwhile.
	if now, err := blockio.Stat(s.path(n), s.cfg.Inject); err != nil || !os.SameFile(st, now) {
		return false
	}
	err = s.remove(n)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// fetch reads and checks a whole record, and copies its first pages to the job.
func (s *Store) fetch(w int, j *ops.Job, n record.Name) (sum uint64, err error) {
	want := &j.Op.Extent
	var r record.Record
	st, body, err := s.load(w, n, &r)
	if err != nil {
		return 0, err
	}
	if err := s.info.Identity.Layout.CheckRead(&r.Extent, want); err != nil {
		return 0, err
	}
	if !j.Pages(func(pages [][]byte) { sum = checksum.Scatter(pages, body) }) {
		return 0, ops.ErrEnded
	}
	if sum != r.PayloadSum {
		return 0, fmt.Errorf("%w: wrong checksum of %s", mempool.ErrCorrupt, s.path(n))
	}
	s.touch(s.path(n), st.ModTime())
	if !j.Commit() {
		return 0, ops.ErrEnded
	}
	s.learn(n, st.Size())
	return r.PayloadSum, nil
}

// load reads a record's file into the buffer of worker w, which r and body then share, and checks the
// header. It fails with ErrCorrupt only if the file's own bytes are wrong. If the file could be
// opened, st describes it also after an error. The file is closed when load returns: a close that hangs
// then hangs before the job commits, while it can still be canceled.
func (s *Store) load(w int, n record.Name, r *record.Record) (st os.FileInfo, body []byte, err error) {
	f, err := blockio.Open(s.path(n), os.O_RDONLY, s.cfg.Inject)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // nothing was written, so its error means nothing
	if st, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if !s.plausible(st) {
		return st, nil, fmt.Errorf("%w: %s has %d bytes", mempool.ErrCorrupt, f.Name(), st.Size())
	}
	buf := s.buffers[w][:st.Size()]
	if err := f.ReadAt(buf, 0); err != nil {
		return st, nil, err
	}
	if *r, body, err = s.format.Decode(buf); errors.Is(err, mempool.ErrMiss) {
		err = fmt.Errorf("%w: %s has no record", mempool.ErrCorrupt, f.Name())
	}
	if err != nil {
		return st, nil, err
	}
	if int64(s.fileBytes(&r.Extent)) != st.Size() {
		return st, nil, fmt.Errorf("%w: %s has %d bytes, its record %d", mempool.ErrCorrupt, f.Name(), st.Size(), s.fileBytes(&r.Extent))
	}
	return st, body, nil
}
