package diskmem

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// TestHugeIndex checks that an index without an end, or far larger than one of the directory can be, is
// replaced instead of read, and that the records are found all the same.
func TestHugeIndex(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"large": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 700<<20))
		},
		"link": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		t.Run(name, func(t *testing.T) {
			id := storetest.Identity()
			c := Config{Dir: t.TempDir(), Identity: id, Bytes: 1 << 20, SegmentBytes: 1 << 20}
			open := func() *slotted.Store {
				s, err := Open(c)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s, l := open(), id.Layout
			x := l.AppendExtents(nil, kv.Namespace{}, make([]kv.Token, l.ExtentTokens()), nil)[0]
			op := mempool.Op{ID: 1, Kind: mempool.Put, Extent: x}
			for range l.Pages(&x) {
				op.Pages = append(op.Pages, make([]byte, l.PageBytes))
			}
			if err := s.Submit(op); err != nil {
				t.Fatal(err)
			}
			<-s.Ready()
			if d := s.Poll(nil); len(d) != 1 || d[0].Err != nil {
				t.Fatal(d)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			index := filepath.Join(c.Dir, id.Fingerprint().String(), "index")
			if err := errors.Join(os.Remove(index), plant(index)); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s = open()
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
				t.Errorf("opening allocates %d bytes", n)
			}
			if got := s.Contents(nil); len(got) != 1 || got[0].Key != x.Key {
				t.Errorf("%d extents are found, want 1", len(got))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if st, err := os.Lstat(index); err != nil || !st.Mode().IsRegular() || st.Size() > 1<<20 {
				t.Errorf("the index is not replaced: %v, %v", st, err)
			}
		})
	}
}
