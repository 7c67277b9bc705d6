package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
	"github.com/coppice-llm/coppice/mempool"
)

// The kinds of directories.
const (
	Disk   = blockio.Disk
	Shared = blockio.Shared
)

// Dir is the directory of one identity.
type Dir struct {
	Path        string
	Fingerprint string
	Kind        string // Disk or Shared
	Identity    mempool.Identity
	InUse       bool // a process has it open as a disk tier
	// Err says why what is in it can't be read: what it says of itself is missing,
	// damaged, or of another version.
	Err error
}

// Record is a record in a directory.
type Record struct {
	mempool.Record
	Path string
	At   int64     // of its header in the file
	Used time.Time // last, or when the file was written; of a file of slots that is no record's
	Err  error     // it is damaged or of another identity; Record is empty then
}

// Find finds the directories of identities in dir, or dir itself if it is one, by name.
// It fails with fs.ErrNotExist where there is no dir, and finds none in an empty one.
func Find(dir string) ([]Dir, error) {
	dir = filepath.Clean(dir)
	if blockio.IsFingerprint(filepath.Base(dir)) {
		if _, err := os.Stat(dir); err != nil {
			return nil, err
		}
		return []Dir{look(dir)}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []Dir
	for _, e := range entries {
		if e.IsDir() && blockio.IsFingerprint(e.Name()) {
			found = append(found, look(filepath.Join(dir, e.Name())))
		}
	}
	return found, nil
}

func look(path string) Dir {
	d := Dir{Path: path, Fingerprint: filepath.Base(path)}
	card, err := blockio.ReadCard(path)
	if err == nil {
		err = card.Identity.Validate()
	}
	d.Kind, d.Identity = card.Kind, card.Identity
	switch {
	case err != nil:
		d.Err = fmt.Errorf("inspect: %s: %w", blockio.IdentityFile, err)
	case d.Kind != Disk && d.Kind != Shared:
		d.Err = fmt.Errorf("inspect: unknown kind %q", d.Kind)
	case card.Identity.Fingerprint().String() != d.Fingerprint:
		d.Err = fmt.Errorf("inspect: %w: the name is not the fingerprint of its identity", mempool.ErrForeign)
	}
	if lock, err := d.lock(); err != nil {
		d.InUse = errors.Is(err, mempool.ErrLocked)
	} else if lock != nil {
		lock.Close()
	}
	return d
}

// lock keeps disk tiers from opening the directory, until it is closed. It is nil for
// directories without a lock, and fails with mempool.ErrLocked where one has it open.
func (d *Dir) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(d.Path, "lock"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	ok, err := blockio.TryLock(f)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", mempool.ErrLocked, d.Path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d *Dir) format() mempool.Format {
	return mempool.Format{Fingerprint: d.Identity.Fingerprint(), Layout: d.Identity.Layout}
}

// Records are those in the directory, in no order that means anything; with payload their
// pages are read and checked too. What a running process writes meanwhile may be missed.
func (d *Dir) Records(payload bool) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if d.Err != nil {
			return
		}
		f := d.format()
		pattern, step := filepath.Join(d.Path, "slots-*"), int64(f.SlotBytes())
		if d.Kind == Shared {
			pattern, step = filepath.Join(d.Path, "[0-9a-f][0-9a-f]", "*.kvx"), 0
		}
		paths, _ := filepath.Glob(pattern)
		slices.Sort(paths)
		for _, path := range paths {
			if !d.file(path, step, payload, yield) {
				return
			}
		}
	}
}

// file yields the records of one file: of slots, step bytes apart, or with step 0 the one.
func (d *Dir) file(path string, step int64, payload bool, yield func(Record) bool) bool {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true // removed meanwhile
	} else if err != nil {
		return yield(Record{Path: path, Err: err})
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return yield(Record{Path: path, Err: err})
	}
	f := d.format()
	buf := make([]byte, f.SlotBytes())
	for at := int64(0); at == 0 || at < st.Size(); at += step {
		r := Record{Path: path, At: at, Used: st.ModTime()}
		r.Record, r.Err = read(file, at, &f, buf, payload)
		if name := strings.TrimSuffix(filepath.Base(path), ".kvx"); r.Err == nil && step == 0 && name != r.Key.String() {
			r.Err = fmt.Errorf("%w: the file has the record %s", mempool.ErrCorrupt, r.Key.Short())
		}
		if step > 0 && errors.Is(r.Err, mempool.ErrMiss) {
			if at+step >= st.Size() {
				break
			}
			continue
		}
		if !yield(r) {
			return false
		}
		if step == 0 {
			break
		}
	}
	return true
}

// read reads a record, with its pages or without. It fails with mempool.ErrMiss where
// there is none.
func read(file *os.File, at int64, f *mempool.Format, buf []byte, payload bool) (mempool.Record, error) {
	head := buf[:f.HeaderBytes()]
	if n, err := file.ReadAt(head, at); n < len(head) {
		if err == io.EOF {
			err = fmt.Errorf("%w: %d bytes of a header", mempool.ErrCorrupt, n)
		}
		return mempool.Record{}, err
	}
	r, err := f.ParseHeader(head)
	if err != nil || !payload {
		return r, err
	}
	body := buf[len(head) : len(head)+r.PayloadBytes]
	if n, err := file.ReadAt(body, at+int64(len(head))); n < len(body) {
		return mempool.Record{}, fmt.Errorf("%w: %d bytes of %d: %w", mempool.ErrCorrupt, n, len(body), err)
	}
	if mempool.Sum(body) != r.PayloadSum {
		return mempool.Record{}, fmt.Errorf("%w: checksum of %s", mempool.ErrCorrupt, r.Key.Short())
	}
	return r, nil
}
