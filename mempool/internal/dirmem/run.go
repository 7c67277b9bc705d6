package dirmem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/ops"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// touchAge is the age that a record's modification time must exceed before a use renews it. So most
// uses write no metadata.
const touchAge = time.Minute

// run executes one operation on worker w.
func (s *Store) run(w int, j *ops.Job) mempool.Done {
	k := j.Op.Extent.Key
	switch j.Op.Kind {
	case mempool.Put:
		return s.put(w, j)
	case mempool.Get:
		return s.get(w, j)
	case mempool.Drop:
		return mempool.Done{Err: s.drop(k)}
	case mempool.Probe:
		return s.probe(j)
	default:
		return mempool.Done{Err: s.keeper.round()}
	}
}

// probe looks for each extent's file, so it also finds records that other processes have written
// since the last listing of the directory.
func (s *Store) probe(j *ops.Job) mempool.Done {
	if _, _, err := s.find(j.Op.Extent.Key); err != nil {
		return mempool.Done{Err: err}
	}
	d := mempool.Done{Found: 1}
	for _, k := range j.Op.Then {
		if _, _, err := s.find(k); err != nil { // any error ends the count
			break
		}
		d.Found++
	}
	return d
}

// find returns the name of a record and the size of its file, and renews the record's time of use. It
// fails with ErrMiss if there is no such record, if what is there can't be a record, or if it is hidden.
func (s *Store) find(k mempool.Key) (n record.Name, size int64, err error) {
	n = s.name(k)
	if s.hides(n) {
		return n, 0, fmt.Errorf("%w: %s could not be read a short time ago", mempool.ErrMiss, k.Short())
	}
	st, err := blockio.Stat(s.path(n), s.cfg.Inject)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !s.plausible(st):
		s.learn(n, 0)
		return n, 0, fmt.Errorf("%w: %s", mempool.ErrMiss, k.Short())
	case err != nil:
		return n, 0, err
	}
	s.learn(n, st.Size())
	s.touch(s.path(n), st.ModTime())
	return n, st.Size(), nil
}

// plausible reports whether a file can be a record, by its kind and size.
func (s *Store) plausible(st os.FileInfo) bool {
	size := st.Size()
	return st.Mode().IsRegular() && size > int64(s.format.HeaderBytes()) && size <= int64(s.info.SlotBytes) && size%blockio.Align == 0
}

// touch renews the time of use of the record at path, which is the file's modification time, if that
// time, last, is further than touchAge from now. It ignores failures: they only make the record look
// older.
func (s *Store) touch(path string, last time.Time) {
	if time.Since(last).Abs() > touchAge {
		_ = blockio.Touch(path)
	}
}

// put writes a record to a temporary file, and renames that file if the record's parent is in the
// directory. It replaces what is there but is no record of this extent, or could not be read. If a put
// of the parent was submitted earlier and has not ended, it first waits for that put.
func (s *Store) put(w int, j *ops.Job) mempool.Done {
	x := &j.Op.Extent
	parent := s.PutBefore(x.Parent, j)
	want := int64(s.fileBytes(x))
	fits, release := s.reserve(want)
	defer release()
	if _, size, err := s.find(x.Key); err == nil && size == want {
		return mempool.Done{}
	}
	if parent == nil {
		if err := s.hasParent(x); err != nil {
			return mempool.Done{Err: err}
		}
	}
	if !fits {
		return mempool.Done{Err: fmt.Errorf("%w: %d bytes", mempool.ErrFull, s.quota.Load())}
	}
	r := record.Record{Extent: *x, Seq: uint64(time.Now().UnixNano()), PayloadBytes: s.info.Identity.Layout.Bytes(x)}
	tmp, err := s.write(w, j, &r)
	if err == nil && j.Op.Sum != 0 && j.Op.Sum != r.PayloadSum {
		err = fmt.Errorf("%w: %s was put with checksum %x, want %x", mempool.ErrCorrupt, x.Key.Short(), r.PayloadSum, j.Op.Sum)
	}
	if err == nil && parent != nil {
		<-parent.Left()
		err = s.hasParent(x)
	}
	if err == nil && !j.Commit() {
		err = ops.ErrEnded
	}
	n := s.newName(x.Key)
	if err == nil {
		err = s.cfg.Inject.Do(blockio.Rename, func() error { return rename(tmp, s.path(n)) })
	}
	if err != nil {
		if tmp != "" {
			os.Remove(tmp)
		}
		return mempool.Done{Err: err}
	}
	s.learn(n, want)
	return mempool.Done{Bytes: r.PayloadBytes, Sum: r.PayloadSum}
}

// rename renames a record into its directory, which it creates for the first record.
func rename(tmp, path string) error {
	err := os.Rename(tmp, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(path), blockio.DirMode); err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Rename(tmp, path)
		}
	}
	return err
}

// hasParent fails with ErrOrphan unless the directory has the parent of x with the size of a full
// extent: a tail can't be a parent.
func (s *Store) hasParent(x *mempool.Extent) error {
	if x.Parent.IsZero() {
		return nil
	}
	if n := s.name(x.Parent); !s.hides(n) {
		st, err := blockio.Stat(s.path(n), s.cfg.Inject)
		if err == nil && s.plausible(st) && st.Size() == int64(s.format.SlotBytes()) {
			return nil
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%w: %s below %s", mempool.ErrOrphan, x.Key.Short(), x.Parent.Short())
}

// fileBytes returns the size of x's file.
func (s *Store) fileBytes(x *mempool.Extent) int {
	return s.format.RecordBytes(s.info.Identity.Layout.Bytes(x))
}

// write writes a whole record to a temporary file and returns the file's name.
func (s *Store) write(w int, j *ops.Job, r *record.Record) (tmp string, err error) {
	buf := s.buffers[w][:s.fileBytes(&r.Extent)]
	if !j.Pages(func(pages [][]byte) { r.PayloadSum = checksum.Gather(buf[s.format.HeaderBytes():], pages) }) {
		return "", ops.ErrEnded
	}
	if err := s.format.Encode(buf, r); err != nil {
		return "", err
	}
	tmp = filepath.Join(s.dir, "tmp", fmt.Sprintf("%s%s-%d-%d", blockio.TempPrefix, s.keeper.owner, w, r.Seq))
	f, err := blockio.Open(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, s.cfg.Inject)
	if err != nil {
		return "", err
	}
	if err = f.Reserve(int64(len(buf))); err == nil {
		err = f.WriteAt(buf, 0)
	}
	return tmp, errors.Join(err, f.Close())
}

// drop removes a record; it fails with ErrMiss if there is none, and with ErrChildren if it has
// children. To find children it lists the directory and reads all headers not read before. That is
// slow, but removals for the quota don't use drop: the keeper makes them.
func (s *Store) drop(k mempool.Key) error {
	if _, _, err := s.find(k); err != nil {
		return err
	}
	children, err := s.keeper.children(k)
	if err != nil {
		return err
	}
	if children > 0 {
		return fmt.Errorf("%w: %s has %d", mempool.ErrChildren, k.Short(), children)
	}
	missed := fmt.Errorf("%w: another process has removed %s", mempool.ErrMiss, k.Short())
	for n := range s.format.Names(k) {
		switch err := s.remove(n); {
		case err == nil:
			missed = nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return missed
}

// remove removes a record's file and forgets its size. It fails with fs.ErrNotExist if another process
// was faster.
func (s *Store) remove(n record.Name) error {
	err := s.cfg.Inject.Do(blockio.Remove, func() error { return os.Remove(s.path(n)) })
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		s.learn(n, 0)
	}
	return err
}
