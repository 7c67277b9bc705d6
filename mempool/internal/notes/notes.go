package notes

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// Dir is a directory of notes. It implements mempool.Notes.
type Dir struct {
	dir    string
	format record.Format
	most   int64 // bytes of all files
	in     *blockio.Injector

	mu    sync.Mutex
	sizes map[string]int64 // of the files, by name
	bytes int64            // sum of sizes
}

// magic begins a note. The length of its name (u32), the name and the value follow, and then the SHA-256 of all bytes before. With
// a key all of it is sealed.
const magic = "CPPCNT1\n"

// extra is the most bytes that a file has beside name and value: magic, length, digest and seal.
const extra = 1 << 10

// maxName bounds a name.
const maxName = 4 << 10

// Open opens the directory, and makes it if needed. It removes what an interrupted PutNote left. most bounds the bytes of
// all files, which may be exceeded by those that are there. in plants faults in tests; nil: none.
func Open(dir string, format record.Format, most int64, in *blockio.Injector) (*Dir, error) {
	if err := os.MkdirAll(dir, blockio.DirMode); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	d := &Dir{dir: dir, format: format, most: most, in: in, sizes: map[string]int64{}}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), blockio.TempPrefix) {
			os.Remove(filepath.Join(dir, e.Name()))
			continue
		}
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			d.count(e.Name(), st.Size())
		}
	}
	return d, nil
}

// count sets the size of a file; 0 for none.
func (d *Dir) count(file string, bytes int64) {
	d.bytes += bytes - d.sizes[file]
	if d.sizes[file] = bytes; bytes == 0 {
		delete(d.sizes, file)
	}
}

// files returns the names of the files that a note may be in: first that of a new one, then those under earlier secrets.
func (d *Dir) files(name string) (all []string) {
	for n := range d.format.Names(mempool.Key(sha256.Sum256([]byte("coppice note\n" + name)))) {
		all = append(all, n.String())
	}
	return all
}

// PutNote implements mempool.Notes.
func (d *Dir) PutNote(name string, value []byte) error {
	if len(value) > mempool.MaxNoteBytes || len(name) > maxName {
		return fmt.Errorf("%w: a note of %d bytes, at most %d", mempool.ErrFull, len(value), mempool.MaxNoteBytes)
	}
	b := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(name)))
	b = append(append(b, name...), value...)
	sum := sha256.Sum256(b)
	b, err := d.format.SealIndex(append(b, sum[:]...))
	if err != nil {
		return err
	}
	file := d.files(name)[0]
	d.mu.Lock()
	defer d.mu.Unlock()
	if all := d.bytes - d.sizes[file] + int64(len(b)); all > d.most {
		return fmt.Errorf("%w: all notes would have %d bytes, at most %d", mempool.ErrFull, all, d.most)
	}
	if err := blockio.Replace(filepath.Join(d.dir, file), b, d.in); err != nil {
		return fmt.Errorf("notes: %w", err)
	}
	d.count(file, int64(len(b)))
	return nil
}

// Note implements mempool.Notes.
func (d *Dir) Note(name string) ([]byte, error) {
	for _, file := range d.files(name) {
		found, value, err := d.read(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case found != name:
			return nil, fmt.Errorf("%w: a note has another name than its file", mempool.ErrCorrupt)
		}
		return value, nil
	}
	return nil, mempool.ErrMiss
}

// read returns the name and the value in a file.
func (d *Dir) read(file string) (name string, value []byte, err error) {
	b, err := blockio.ReadSmall(filepath.Join(d.dir, file), mempool.MaxNoteBytes+maxName+extra, d.in)
	if err == nil {
		b, err = d.format.OpenIndex(b)
	}
	if err != nil {
		return "", nil, err
	}
	const fixed = len(magic) + 4
	if len(b) < fixed+sha256.Size || string(b[:len(magic)]) != magic {
		return "", nil, fmt.Errorf("%w: no note", mempool.ErrCorrupt)
	}
	rest, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	own := sha256.Sum256(rest)
	n := int64(binary.LittleEndian.Uint32(rest[len(magic):]))
	if !bytes.Equal(own[:], sum) || n > int64(len(rest)-fixed) {
		return "", nil, fmt.Errorf("%w: a note is damaged", mempool.ErrCorrupt)
	}
	return string(rest[fixed : int64(fixed)+n]), rest[int64(fixed)+n:], nil
}

// DropNote implements mempool.Notes.
func (d *Dir) DropNote(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, file := range d.files(name) {
		if err := os.Remove(filepath.Join(d.dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("notes: %w", err)
		}
		d.count(file, 0)
	}
	return nil
}

// EachNote implements mempool.Notes.
func (d *Dir) EachNote(yield func(value []byte) bool) error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("notes: %w", err)
	}
	for _, e := range entries {
		if _, value, err := d.read(e.Name()); err == nil && !yield(value) {
			break
		}
	}
	return nil
}
