package dirmem

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coppice-llm/coppice/internal/heap"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
)

// keeper lists the whole directory, and enforces its quota while it has the lease.
type keeper struct {
	s     *Store
	owner string // name of this store, unique among all processes

	mu      sync.Mutex                  // one listing at a time
	parents map[record.Name]mempool.Key // parents of the records whose headers were read
	has     bool                        // it had the lease in the last round
	lease   string                      // path of the lease
	now     time.Time                   // time of the last round by the file system's clock
	left    map[record.Name]struct{}    // records of other formats or keys, which are left alone
}

// file is a record as found by listing the directory.
type file struct {
	name     record.Name
	size     int64
	used     time.Time
	children int
}

func (k *keeper) init(s *Store) {
	host, _ := os.Hostname()
	k.s, k.lease, k.parents, k.left = s, filepath.Join(s.dir, "keeper"), map[record.Name]mempool.Key{}, map[record.Name]struct{}{}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(host))
	k.owner = fmt.Sprintf("%s-%d-%d", host, os.Getpid(), time.Now().UnixNano())
}

// round renews the lease or takes it if possible, and lists the directory. If it has the lease, it
// also removes old temporary files and the records beyond the quota.
func (k *keeper) round() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.s.renew()
	err := k.hold()
	files, lookErr := k.look()
	if err = errors.Join(err, lookErr); err != nil || !k.has {
		return err
	}
	return errors.Join(k.sweep(), k.evict(files))
}

// look lists the records in the directory and returns them. It updates the store's table of sizes.
func (k *keeper) look() (map[record.Name]*file, error) {
	s := k.s
	s.mu.Lock()
	clear(s.changed)
	s.mu.Unlock()
	files := map[record.Name]*file{}
	shards, err := k.list(s.dir)
	if err != nil {
		return nil, err
	}
	for _, shard := range shards {
		if len(shard.Name()) != 2 || !shard.IsDir() {
			continue
		}
		entries, err := k.list(filepath.Join(s.dir, shard.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			var key mempool.Key
			name, ok := strings.CutSuffix(e.Name(), suffix)
			if !ok || key.UnmarshalText([]byte(name)) != nil {
				continue
			}
			st, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // another process removed it
			} else if err != nil {
				return nil, err
			}
			if st.Mode().IsRegular() {
				n := record.Name(key)
				files[n] = &file{name: n, size: st.Size(), used: st.ModTime()}
			}
		}
	}
	s.relearn(files)
	return files, nil
}

// list lists a directory.
func (k *keeper) list(dir string) (entries []fs.DirEntry, err error) {
	err = k.s.cfg.Inject.Do(blockio.Lookup, func() (err error) {
		entries, err = os.ReadDir(dir)
		return err
	})
	return entries, err
}

// children returns the number of records whose parent is the extent of. It lists the directory and
// reads the headers that it has not read before.
func (k *keeper) children(of mempool.Key) (n int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	files, err := k.look()
	if err != nil {
		return 0, err
	}
	for name := range files {
		if p, ok := k.parent(name); ok && p == of {
			n++
		}
	}
	return n, nil
}

// parent returns the parent of a record, from the record's header. ok is false if the header can't be
// read, or if the record has another format or is damaged. parent removes damaged records, but not
// those that a failed call hides: the fault may pass, or be this process's own.
func (k *keeper) parent(name record.Name) (p mempool.Key, ok bool) {
	if p, ok := k.parents[name]; ok {
		return p, true
	}
	if _, other := k.left[name]; other {
		return p, false
	}
	r, err := k.header(name)
	switch {
	case err == nil:
		k.parents[name] = r.Parent
		return r.Parent, true
	case errors.Is(err, mempool.ErrForeign):
		k.left[name] = struct{}{}
	case errors.Is(err, mempool.ErrCorrupt):
		if _, again := k.header(name); errors.Is(again, mempool.ErrCorrupt) { // a wrong byte of one read may be this process's fault
			_ = k.s.remove(name)
		}
	}
	return p, false
}

// header reads the header of a record. It fails with ErrCorrupt only if the file's own bytes are wrong.
func (k *keeper) header(name record.Name) (r record.Record, err error) {
	f, err := blockio.Open(k.s.path(name), os.O_RDONLY, k.s.cfg.Inject)
	if err != nil {
		return r, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && !k.s.plausible(st) {
		err = fmt.Errorf("%w: %s has %d bytes", mempool.ErrCorrupt, f.Name(), st.Size())
	}
	head := k.s.buffers[len(k.s.buffers)-1][:k.s.format.HeaderBytes()]
	if err == nil {
		err = f.ReadAt(head, 0)
	}
	if err == nil {
		r, err = k.s.format.ParseHeader(head)
	}
	if errors.Is(err, mempool.ErrMiss) || err == nil && !k.s.format.Named(r.Key, name) {
		err = fmt.Errorf("%w: %s has another record or none", mempool.ErrCorrupt, f.Name())
	}
	return r, err
}

// evict removes records until they take at most Config.Low of the quota, if they take more than
// Config.High. files are the records in the directory. It removes only leaves: first those whose
// parent is missing, then the least recently used. A parent becomes a leaf when its last child is
// removed, and counts as used no earlier than that child.
func (k *keeper) evict(files map[record.Name]*file) error {
	var bytes int64
	for _, f := range files {
		bytes += f.size
	}
	if float64(bytes) <= k.s.cfg.High*float64(k.s.quota.Load()) {
		return nil
	}
	low := int64(k.s.cfg.Low * float64(k.s.quota.Load()))
	all := make([]*file, 0, len(files))
	for _, f := range files {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *file) int { return slices.Compare(a.name[:], b.name[:]) })
	for _, f := range all {
		p, ok := k.parent(f.name)
		_, other := k.left[f.name]
		switch up := k.up(files, p); {
		case ok && up != nil:
			up.children++
		case other: // other processes may have its key
		case !ok || !p.IsZero():
			f.used = time.Time{} // without its parent no lookup reaches it
		}
	}
	var leaves heap.Heap[leaf, unplaced]
	for _, f := range all {
		if f.children == 0 {
			leaves.Push(unplaced{}, leaf{f})
		}
	}
	for bytes > low && len(leaves.Items) > 0 {
		f := leaves.Remove(unplaced{}, 0)
		if err := k.s.remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		bytes -= f.size
		if up := k.up(files, k.parents[f.name]); up != nil {
			if up.used.Before(f.used) {
				up.used = f.used
			}
			if up.children--; up.children == 0 {
				leaves.Push(unplaced{}, leaf{up})
			}
		}
		delete(k.parents, f.name)
	}
	return nil
}

// up returns the file of a record's parent, or nil.
func (k *keeper) up(files map[record.Name]*file, parent mempool.Key) *file {
	if parent.IsZero() {
		return nil
	}
	for n := range k.s.format.Names(parent) {
		if f := files[n]; f != nil {
			return f
		}
	}
	return nil
}

// leaf is a file without children. Leaves are ordered by their last use.
type leaf struct{ *file }

// Before implements heap.Element.
func (l leaf) Before(m leaf) bool {
	return cmp.Or(l.used.Compare(m.used), slices.Compare(l.name[:], m.name[:])) < 0
}

// unplaced implements heap.Places for a heap whose elements are never looked up.
type unplaced struct{}

// Place implements heap.Places.
func (unplaced) Place(leaf, int) {}
