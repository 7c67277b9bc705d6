package blockio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrNotRegular is the error of Open, OpenPlain and ReadSmall for a pipe, a device, a directory or a socket.
var ErrNotRegular = errors.New("blockio: not a regular file")

// Align is the alignment of offsets, lengths and addresses of direct transfers. A file system
// that needs a larger one is used through the page cache.
const Align = 4096

// File is an open file.
type File struct {
	f      *os.File
	direct bool
	in     *Injector
}

// ErrTooLarge is the error of ReadSmall for a file with more bytes than its limit.
var ErrTooLarge = errors.New("blockio: file too large")

// Open opens a regular file for direct transfers, or for transfers through the page cache if the
// file system refuses direct ones. It does not wait for a writer of a pipe, and fails with
// ErrNotRegular for anything but a regular file. flag is as for os.OpenFile; in may be nil.
func Open(path string, flag int, in *Injector) (*File, error) {
	var f *os.File
	direct := false
	point := Lookup
	if flag&os.O_CREATE != 0 {
		point = Create
	}
	err := in.Do(point, func() (err error) {
		if f, direct, err = open(path, flag|nonblock); err == nil {
			_, err = regular(f)
		}
		return err
	})
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	return &File{f: f, direct: direct, in: in}, nil
}

// regular returns the description of an open file; it fails with ErrNotRegular.
func regular(f *os.File) (os.FileInfo, error) {
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is of mode %v", ErrNotRegular, f.Name(), st.Mode())
	}
	return st, err
}

// Stat describes the file at path, following links; in may be nil.
func Stat(path string, in *Injector) (st os.FileInfo, err error) {
	err = in.Do(Lookup, func() (err error) {
		st, err = os.Stat(path)
		return err
	})
	return st, err
}

// ReadSmall returns the content of a regular file of at most limit bytes; in may be nil. It reads no
// more than that, and fails with ErrTooLarge for a larger file. So a file that another process planted takes neither
// memory nor time.
func ReadSmall(path string, limit int, in *Injector) (b []byte, err error) {
	err = in.Do(Lookup, func() (err error) {
		b, err = readSmall(path, limit)
		return err
	})
	return b, err
}

// OpenPlain opens a regular file to read it through the page cache, into any memory.
func OpenPlain(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	if _, err := regular(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func readSmall(path string, limit int) ([]byte, error) {
	f, err := OpenPlain(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(b) > limit {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, path, limit)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Inject returns a File on the same descriptor whose calls have the faults of in.
func (f *File) Inject(in *Injector) *File { return &File{f: f.f, direct: f.direct, in: in} }

// Direct reports whether transfers bypass the page cache.
func (f *File) Direct() bool { return f.direct }

// Name returns the path with which the file was opened.
func (f *File) Name() string { return f.f.Name() }

// Stat describes the file.
func (f *File) Stat() (os.FileInfo, error) { return f.f.Stat() }

// Size returns the length of the file in bytes.
func (f *File) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Changed returns the file's modification time.
func (f *File) Changed() (time.Time, error) {
	st, err := f.f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

// Direct reports whether the file at path can be opened for direct transfers.
func Direct(path string) bool {
	f, err := Open(path, os.O_RDONLY, nil)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Direct()
}

// ReadAt fills b, which must be memory from Alloc, from the file at offset at. It fails with
// io.ErrUnexpectedEOF if the file ends before.
func (f *File) ReadAt(b []byte, at int64) error {
	n, err := f.in.Move(Read, b, func() (int, error) { return f.f.ReadAt(b, at) })
	switch {
	case err != nil && err != io.EOF:
		return fmt.Errorf("reading %s at %d: %w", f.f.Name(), at, err)
	case n != len(b):
		return fmt.Errorf("reading %s: %d bytes of %d at %d: %w", f.f.Name(), n, len(b), at, io.ErrUnexpectedEOF)
	}
	return nil
}

// WriteAt writes b, which must be memory from Alloc, to the file at offset at.
func (f *File) WriteAt(b []byte, at int64) error {
	if _, err := f.in.Move(Write, b, func() (int, error) { return f.f.WriteAt(b, at) }); err != nil {
		return fmt.Errorf("writing %s at %d: %w", f.f.Name(), at, err)
	}
	return nil
}

// Sync waits until the file's bytes are on the disk.
func (f *File) Sync() error { return f.in.Do(Sync, f.f.Sync) }

// Reserve extends the file to size bytes, with blocks allocated on the disk if the file system
// supports that.
func (f *File) Reserve(size int64) error {
	return f.in.Do(Create, func() error { return reserve(f.f, size) })
}

// Close closes the file. It closes it even if an injected fault makes it fail.
func (f *File) Close() error {
	err := f.in.Do(Close, func() error { return nil })
	return errors.Join(err, f.f.Close())
}

// Replace writes a file atomically: to a temporary file in the same directory, which it syncs
// and renames; then it syncs the directory.
func Replace(path string, content []byte, in *Injector) error {
	tmp, err := os.CreateTemp(dirOf(path), TempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = in.Move(Write, content, func() (int, error) { return tmp.Write(content) })
	if err == nil {
		err = tmp.Chmod(0o640) // CreateTemp makes 0600; the group of a shared directory must read it
	}
	if err == nil {
		err = in.Do(Sync, tmp.Sync)
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = in.Do(Rename, func() error { return os.Rename(tmp.Name(), path) })
	}
	if err != nil {
		os.Remove(tmp.Name())
		return err
	}
	return syncDir(dirOf(path))
}

// TempPrefix begins the names of files that are still being written.
const TempPrefix = "tmp-"
