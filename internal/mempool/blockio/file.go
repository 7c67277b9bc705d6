package blockio

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Align is what offsets, lengths and addresses of direct transfers are multiples of here.
// A file system that asks for more is used through the page cache.
const Align = 4096

// File is an open file.
type File struct {
	f      *os.File
	direct bool
	in     *Injector
}

// Open opens a file for direct transfers, or through the page cache where the file system
// refuses them. in may be nil.
func Open(path string, flag int, in *Injector) (*File, error) {
	var f *os.File
	direct := false
	open := func() (err error) {
		f, direct, err = open(path, flag)
		return err
	}
	var err error
	if flag&os.O_CREATE != 0 {
		err = in.Do(Create, open)
	} else {
		err = in.Do(Read, open)
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	return &File{f: f, direct: direct, in: in}, nil
}

// Inject is f with faults planted in its calls from now on.
func (f *File) Inject(in *Injector) *File { return &File{f: f.f, direct: f.direct, in: in} }

// Direct reports whether transfers pass the page cache by.
func (f *File) Direct() bool { return f.direct }

// Name is the path that the file was opened by.
func (f *File) Name() string { return f.f.Name() }

// Size is the length of the file in bytes.
func (f *File) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Changed is when the file was last written to or touched.
func (f *File) Changed() (time.Time, error) {
	st, err := f.f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

// Direct reports whether the file system of a file takes direct transfers.
func Direct(path string) bool {
	f, err := Open(path, os.O_RDONLY, nil)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Direct()
}

// ReadAt fills b, from Alloc, from the file. It fails with io.ErrUnexpectedEOF where the
// file ends before.
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

// WriteAt writes b, from Alloc.
func (f *File) WriteAt(b []byte, at int64) error {
	if _, err := f.in.Move(Write, b, func() (int, error) { return f.f.WriteAt(b, at) }); err != nil {
		return fmt.Errorf("writing %s at %d: %w", f.f.Name(), at, err)
	}
	return nil
}

// Sync waits until the file's bytes are on the device.
func (f *File) Sync() error { return f.in.Do(Sync, f.f.Sync) }

// Reserve gives the file room of size bytes, on the disk where the file system can.
func (f *File) Reserve(size int64) error {
	return f.in.Do(Create, func() error { return reserve(f.f, size) })
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// Replace writes a file whole or not at all: to a temporary name beside it, synced, then
// renamed, and the directory synced.
func Replace(path string, content []byte, in *Injector) error {
	tmp, err := os.CreateTemp(dirOf(path), TempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = in.Move(Write, content, func() (int, error) { return tmp.Write(content) })
	if err == nil {
		err = tmp.Chmod(0o640) // for other users of a shared directory
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
	return SyncDir(dirOf(path))
}

// TempPrefix begins the names of files that are not whole yet.
const TempPrefix = "tmp-"
