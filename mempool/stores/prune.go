package stores

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// tmpAge is the least age of temporary files to remove. Another process may be writing a younger
// one.
const tmpAge = time.Hour

// Pruned counts the records and files that Prune removed, or would remove if it was called with dry.
type Pruned struct {
	Damaged, Orphans, Temporary int
}

// Prune removes damaged records, pipes and the like in their places, duplicates, records whose ancestors are missing, and temporary
// files older than an hour, which killed processes left. If dry is true, it only counts. It fails
// with mempool.ErrLocked while a process has a disk tier open, and with the system's error if a
// record can't be read; then it has removed nothing.
func (d *Dir) Prune(dry bool) (p Pruned, err error) {
	if d.Err != nil {
		return p, d.Err
	}
	unlock, err := d.lock()
	if err != nil {
		return p, err
	}
	defer unlock()
	whole := map[mempool.Key]Record{}
	foreign := 0
	var remove []Record
	for r := range d.Records(true) {
		switch _, twice := whole[r.Key]; {
		case errors.Is(r.Err, mempool.ErrForeign):
			foreign++
		case r.Err != nil && !r.Damaged(): // its children would count as orphans
			return Pruned{}, fmt.Errorf("a record can't be read, but may be intact: %w", r.Err)
		case r.Err != nil, twice:
			p.Damaged++
			remove = append(remove, r)
		default:
			whole[r.Key] = r
		}
	}
	for more := foreign == 0 || !d.Identity.Sealed; more; { // a parent may be sealed with a key that is not given
		more = false
		for k, r := range whole {
			if _, ok := whole[r.Parent]; !ok && !r.Parent.IsZero() {
				delete(whole, k)
				remove = append(remove, r)
				p.Orphans++
				more = true
			}
		}
	}
	tmp := d.temporary()
	p.Temporary = len(tmp)
	if dry {
		return p, nil
	}
	if len(remove) > 0 && d.Kind == disk {
		if err := os.Remove(filepath.Join(d.Path, "index")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	for _, r := range remove {
		if err := d.remove(&r); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	for _, path := range tmp {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	return p, nil
}

// remove removes a record: its file in a shared tier, or its header in a file of slots.
func (d *Dir) remove(r *Record) error {
	if d.Kind == Shared {
		return os.Remove(r.Path)
	}
	f, err := os.OpenFile(r.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(make([]byte, min(blockio.Align, st.Size()-r.At)), r.At)
	}
	return errors.Join(err, f.Close())
}

// temporary lists the temporary files that are older than tmpAge.
func (d *Dir) temporary() (paths []string) {
	for _, dir := range []string{d.Path, filepath.Join(d.Path, "tmp")} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if st, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), blockio.TempPrefix) && time.Since(st.ModTime()) > tmpAge {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	return paths
}

// RemoveAll removes the directory with its contents. It fails with mempool.ErrLocked while a
// process has a disk tier open.
func (d *Dir) RemoveAll() error {
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return os.RemoveAll(d.Path)
}
