package stores

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/diskmem"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// The kinds of directories.
const (
	disk   = blockio.Disk
	Shared = blockio.Shared
)

// Dir is the directory of one identity.
type Dir struct {
	Path        string
	Fingerprint string
	Kind        string // disk or Shared
	Identity    mempool.Identity
	SizeBytes   int64    // most bytes of KV, as the servers agreed; 0 if that is not recorded
	InUse       bool     // a process has it open as a disk tier
	Keys        []string // ids of the secrets that seal records
	// Err is the reason why the records can't be read: the identity file is missing, damaged or
	// of another version, or the records are sealed with a secret that is not given.
	Err error

	sealer *Sealer // nil if records are not sealed
}

// Record is a record in a directory.
type Record struct {
	record.Record
	Path string
	At   int64     // offset of its header in the file
	Used time.Time // the file's modification time; in a shared tier that is the record's last use
	Err  error     // the record is damaged, of another identity or unreadable; Record is empty then
}

// Damaged reports whether the record's own bytes show that it is damaged, or something else than a
// file has its place. After another error than that or mempool.ErrForeign it may be intact.
func (r *Record) Damaged() bool {
	return errors.Is(r.Err, mempool.ErrCorrupt) || errors.Is(r.Err, mempool.ErrMiss) || errors.Is(r.Err, blockio.ErrNotRegular)
}

// Find returns the directories of identities in dir, in order of their names. If dir is named by a
// fingerprint, it returns only dir. s opens sealed records; it may be nil. Find fails with
// fs.ErrNotExist if dir does not exist.
func Find(dir string, s *Sealer) ([]Dir, error) {
	dir = filepath.Clean(dir)
	if blockio.IsFingerprint(filepath.Base(dir)) {
		if _, err := os.Stat(dir); err != nil {
			return nil, err
		}
		return []Dir{look(dir, s)}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []Dir
	for _, e := range entries {
		if e.IsDir() && blockio.IsFingerprint(e.Name()) {
			found = append(found, look(filepath.Join(dir, e.Name()), s))
		}
	}
	return found, nil
}

// look describes the directory of one identity. If the directory is not valid, Dir.Err says why.
func look(path string, s *Sealer) Dir {
	d := Dir{Path: path, Fingerprint: filepath.Base(path)}
	card, err := blockio.ReadCard(path)
	if err == nil {
		err = card.Identity.Validate()
	}
	d.Kind, d.Identity, d.SizeBytes, d.Keys = card.Kind, card.Identity, card.Bytes, card.Keys
	if d.Identity.Sealed {
		d.sealer = s
	}
	switch {
	case err != nil:
		d.Err = fmt.Errorf("inspect: %s: %w", blockio.IdentityFile, err)
	case d.Kind != disk && d.Kind != Shared:
		d.Err = fmt.Errorf("inspect: unknown kind %q", d.Kind)
	case card.Identity.Fingerprint().String() != d.Fingerprint:
		d.Err = fmt.Errorf("inspect: %w: the name is not the fingerprint of its identity", mempool.ErrForeign)
	case card.Opens(s) != nil:
		d.Err = fmt.Errorf("inspect: %w", card.Opens(s))
	}
	if unlock, err := d.lock(); err == nil {
		unlock()
	} else {
		d.InUse = errors.Is(err, mempool.ErrLocked)
	}
	return d
}

// lock prevents disk tiers from opening the directory until unlock is called. It does nothing if the
// directory has no lock. It fails with mempool.ErrLocked if a process has a disk tier open there.
func (d *Dir) lock() (unlock func(), err error) {
	f, err := diskmem.Lock(d.Path, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() {}, nil
	case errors.Is(err, mempool.ErrLocked):
		return nil, fmt.Errorf("%w: %s", mempool.ErrLocked, d.Path)
	}
	return func() { f.Close() }, err
}

// Records yields the records in the directory in an unspecified order, none if d.Err is set. If
// payload is true, it also reads their pages and checks the checksums. It may miss records that a
// process writes at the same time.
func (d *Dir) Records(payload bool) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if d.Err != nil {
			return
		}
		f := record.FormatOf(&d.Identity, d.sealer)
		pattern, step := "slots-*", int64(f.SlotBytes())
		if d.Kind == Shared {
			pattern, step = "[0-9a-f][0-9a-f]/*.kvx", 0
		}
		names, _ := fs.Glob(os.DirFS(d.Path), pattern) // not filepath.Glob: d.Path may have characters of patterns
		for _, name := range names {
			if !d.file(filepath.Join(d.Path, filepath.FromSlash(name)), step, payload, yield) {
				return
			}
		}
	}
}

// file yields the records of one file. A file of slots has records step bytes apart; step 0 means that
// the file has one record. It returns false if yield did.
func (d *Dir) file(path string, step int64, payload bool, yield func(Record) bool) bool {
	file, err := blockio.OpenPlain(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true // another process has removed it
	} else if err != nil {
		return yield(Record{Path: path, Err: err})
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return yield(Record{Path: path, Err: err})
	}
	f := record.FormatOf(&d.Identity, d.sealer)
	buf := make([]byte, f.SlotBytes())
	for at := int64(0); at == 0 || at < st.Size(); at += step {
		r := Record{Path: path, At: at, Used: st.ModTime()}
		r.Record, r.Err = read(file, at, &f, buf, payload)
		if name := strings.TrimSuffix(filepath.Base(path), ".kvx"); r.Err == nil && step == 0 && !named(&f, r.Key, name) {
			r.Err = fmt.Errorf("%w: the file has the record %s", mempool.ErrCorrupt, r.Key.Short())
		}
		if step > 0 && errors.Is(r.Err, mempool.ErrMiss) || errors.Is(r.Err, blockio.ErrNotRegular) {
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

// read reads a record, and if payload is true checks its pages. It fails with mempool.ErrMiss if
// the slot has no record.
func read(file *os.File, at int64, f *record.Format, buf []byte, payload bool) (record.Record, error) {
	head := buf[:f.HeaderBytes()]
	if n, err := file.ReadAt(head, at); n < len(head) {
		if err == io.EOF {
			err = fmt.Errorf("%w: a header of %d bytes", mempool.ErrCorrupt, n)
		}
		return record.Record{}, err
	}
	r, err := f.ParseHeader(head)
	if err != nil || !payload {
		return r, err
	}
	buf = buf[:f.RecordBytes(r.PayloadBytes)]
	if n, err := file.ReadAt(buf, at); n < len(head)+r.PayloadBytes {
		if err == io.EOF {
			err = fmt.Errorf("%w: %d bytes of %d", mempool.ErrCorrupt, n, len(buf))
		}
		return record.Record{}, err
	}
	r, body, err := f.Decode(buf)
	if err != nil {
		return record.Record{}, err
	}
	if checksum.Sum(body) != r.PayloadSum {
		return record.Record{}, fmt.Errorf("%w: wrong checksum of %s", mempool.ErrCorrupt, r.Key.Short())
	}
	return r, nil
}

// named reports whether text is a name of the record of k.
func named(f *record.Format, k mempool.Key, text string) bool {
	var name mempool.Key
	return name.UnmarshalText([]byte(text)) == nil && f.Named(k, record.Name(name))
}
