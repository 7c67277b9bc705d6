package diskmem

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// disk is an open store with single extents, numbered from 0.
type disk struct {
	*testing.T
	c    Config
	dir  string // of the identity
	s    *slotted.Store
	last mempool.OpID
}

// newDisk opens a store of 28 slots, 7 in a file.
func newDisk(t *testing.T, in *blockio.Injector) *disk {
	d := &disk{T: t, c: testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 28, Inject: in})}
	d.dir = filepath.Join(d.c.Dir, d.c.Identity.Fingerprint().String())
	d.open()
	t.Cleanup(func() { d.s.Close() })
	return d
}

func (d *disk) open() {
	d.Helper()
	var err error
	if d.s, err = Open(d.c); err != nil {
		d.Fatal(err)
	}
}

func (d *disk) close() {
	d.Helper()
	if err := d.s.Close(); err != nil {
		d.Fatal(err)
	}
}

// do runs an operation with extent n; pages are its content or the memory for it.
func (d *disk) do(kind mempool.OpKind, n int, pages [][]byte) mempool.Done {
	d.Helper()
	l := d.c.Identity.Layout
	x := l.AppendExtents(nil, kv.Namespace{Salt: fmt.Sprint(n)}, make([]kv.Token, l.ExtentTokens()), nil)[0]
	d.last++
	if err := d.s.Submit(mempool.Op{ID: d.last, Kind: kind, Extent: x, Pages: pages}); err != nil {
		d.Fatal(err)
	}
	for {
		for _, done := range d.s.Poll(nil) {
			return done
		}
		<-d.s.Ready()
	}
}

func (d *disk) content(n int) (pages [][]byte) {
	l := d.c.Identity.Layout
	for p := range l.ExtentPages {
		pages = append(pages, bytes.Repeat([]byte{byte(n), byte(p)}, l.PageBytes/2))
	}
	return pages
}

// put writes extents [from, to).
func (d *disk) put(from, to int) {
	d.Helper()
	for n := from; n < to; n++ {
		if done := d.do(mempool.Put, n, d.content(n)); done.Err != nil {
			d.Fatalf("put of extent %d: %v", n, done.Err)
		}
	}
}

// found returns how many of the extents [0, n) can be read. Their bytes must be right.
func (d *disk) found(n int) (found int) {
	d.Helper()
	for i := range n {
		got := d.content(-1)
		if d.do(mempool.Get, i, got).Err == nil {
			found++
			if !bytes.Equal(bytes.Join(got, nil), bytes.Join(d.content(i), nil)) {
				d.Errorf("extent %d has wrong bytes", i)
			}
		}
	}
	return found
}

func (d *disk) path(file int) string { return filepath.Join(d.dir, fmt.Sprintf("slots-%04d", file)) }

func (d *disk) slotBytes() int64 {
	f := record.FormatOf(&d.c.Identity, d.c.Sealer)
	return int64(f.SlotBytes())
}

// files returns the number of slots of each file, by name.
func (d *disk) files() map[string]int64 {
	d.Helper()
	files := map[string]int64{}
	paths, _ := filepath.Glob(filepath.Join(d.dir, "slots-*"))
	for _, path := range paths {
		st, err := os.Stat(path)
		if err != nil {
			d.Fatal(err)
		}
		files[filepath.Base(path)] = st.Size() / d.slotBytes()
	}
	return files
}

// TestDamagedFiles: a file of slots that is cut short, missing or unusable costs only its own
// extents. The others are found, count in the quota, and the room of the lost ones is used again.
func TestDamagedFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		harm func(d *disk) error
		left int // extents of 28
	}{
		"empty":       {func(d *disk) error { return os.Truncate(d.path(0), 0) }, 21},
		"one byte":    {func(d *disk) error { return os.Truncate(d.path(0), 1) }, 21},
		"two slots":   {func(d *disk) error { return os.Truncate(d.path(1), 2*d.slotBytes()+100) }, 23},
		"missing":     {func(d *disk) error { return os.Remove(d.path(0)) }, 21},
		"two missing": {func(d *disk) error { os.Remove(d.path(2)); return os.Remove(d.path(0)) }, 14},
		"a directory": {func(d *disk) error { os.Remove(d.path(0)); return os.Mkdir(d.path(0), 0o700) }, 21},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%v", name, killed), func(t *testing.T) {
				d := newDisk(t, nil)
				d.put(0, 28)
				d.close()
				if killed {
					os.Remove(filepath.Join(d.dir, "index"))
				}
				if err := tc.harm(d); err != nil {
					t.Fatal(err)
				}
				d.open()
				if m := d.s.Metrics(); m.Extents != tc.left {
					t.Errorf("%d extents are listed, want %d", m.Extents, tc.left)
				}
				if n := d.found(28); n != tc.left {
					t.Errorf("%d extents are found, want %d", n, tc.left)
				}
				d.put(0, 28)
				if done := d.do(mempool.Put, 28, d.content(28)); done.Err == nil {
					t.Errorf("more extents than the quota are stored: %v", d.files())
				}
				d.close()
				d.open()
				if n := d.found(28); n != 28 {
					t.Errorf("after new writes and another open %d of 28 extents are found", n)
				}
				d.close()
			})
		}
	}
}

// TestUnusableFile: a file that can't be used is named in a warning and left as it is.
func TestUnusableFile(t *testing.T) {
	d := newDisk(t, nil)
	d.put(0, 14)
	d.close()
	os.Remove(d.path(0))
	if err := os.Symlink("/dev/zero", d.path(0)); err != nil {
		t.Fatal(err)
	}
	d.open()
	if w := d.s.Info().Warnings; len(w) != 1 || !bytes.Contains([]byte(w[0]), []byte(d.path(0))) {
		t.Errorf("warnings: %q, want one that names %s", w, d.path(0))
	}
	d.put(0, 14)
	d.close()
	if to, err := os.Readlink(d.path(0)); to != "/dev/zero" {
		t.Errorf("the file is %q now, %v", to, err)
	}
}

// TestSwappedFiles: an index that does not belong to the files is not used, whether their times show
// that or only their headers. The headers give all extents back.
func TestSwappedFiles(t *testing.T) {
	for _, sameTime := range []bool{false, true} {
		t.Run(fmt.Sprintf("sameTime=%v", sameTime), func(t *testing.T) {
			d := newDisk(t, nil)
			d.put(0, 21)
			if sameTime { // before the index is written
				for i := range 3 {
					if err := os.Chtimes(d.path(i), time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
						t.Fatal(err)
					}
				}
			}
			d.close()
			if _, err := os.Stat(filepath.Join(d.dir, "index")); err != nil {
				t.Fatal(err)
			}
			for _, step := range [][2]string{{d.path(0), d.path(9)}, {d.path(2), d.path(0)}, {d.path(9), d.path(2)}} {
				if err := os.Rename(step[0], step[1]); err != nil {
					t.Fatal(err)
				}
			}
			d.open()
			if n := d.found(21); n != 21 {
				t.Errorf("%d of 21 extents are found", n)
			}
			d.close()
		})
	}
}

// TestIndexIsUsed: after a clean close, the next open reads one header of a file and not all.
func TestIndexIsUsed(t *testing.T) {
	in := &blockio.Injector{}
	d := newDisk(t, in)
	d.put(0, 21)
	d.close()
	in.Plant(blockio.Read, blockio.IOError, 4, false) // 3 files
	d.open()
	if in.Hits() != 0 {
		t.Error("more than one read of a file")
	}
	in.Clear()
	if n := d.found(21); n != 21 {
		t.Errorf("%d of 21 extents are found", n)
	}
	d.close()
}

// TestSmallerSize: a smaller size drops extents only if that is permitted, and reports that.
// Room without extents is given back in any case.
func TestSmallerSize(t *testing.T) {
	d := newDisk(t, nil)
	full := d.c.Bytes
	d.put(0, 25)
	d.close()
	for _, step := range []struct {
		slots    int64
		shrink   bool
		capacity int64
		found    int
		says     string
	}{
		{26, false, 26, 25, "no extent was dropped"},
		{10, false, 26, 25, "15 extents do not fit"},
		{10, true, 10, 10, "15 extents were dropped"},
		{10, true, 10, 10, ""},
		{28, false, 28, 10, ""},
	} {
		d.c.Bytes, d.c.Shrink = step.slots*d.slotBytes(), step.shrink
		d.open()
		said := strings.Join(d.s.Info().Warnings, "; ")
		if n := d.found(25); n != step.found || !strings.Contains(said, step.says) || step.says == "" && said != "" {
			t.Errorf("%+v: %d extents are found, warnings: %q", step, n, said)
		}
		if m := d.s.Metrics(); m.CapacityBytes != step.capacity*d.slotBytes() {
			t.Errorf("%+v: the capacity is %d slots", step, m.CapacityBytes/d.slotBytes())
		}
		d.close()
	}
	if card, err := blockio.ReadCard(d.dir); err != nil || card.Bytes != full {
		t.Errorf("%d bytes are recorded, want %d; %v", card.Bytes, full, err)
	}
}

// TestLittleRoom: on a disk without room for a full file, files are smaller. On a full one, puts fail
// without trying to reserve room again and again; when there is room, the store takes it.
func TestLittleRoom(t *testing.T) {
	now := time.Unix(0, 0)
	in := &blockio.Injector{}
	d := &disk{T: t, c: testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 28, Inject: in})}
	d.c.now = func() time.Time { return now }
	d.dir = filepath.Join(d.c.Dir, d.c.Identity.Fingerprint().String())
	d.open()
	t.Cleanup(func() { d.s.Close() })
	in.Plant(blockio.Create, blockio.NoSpace, 2, false) // the first reservation
	d.put(0, 3)
	if files := d.files(); files["slots-0000"] != 3 {
		t.Fatalf("files: %v, want one of 3 slots", files)
	}
	in.Plant(blockio.Create, blockio.NoSpace, 1, true)
	for n := 3; n < 20; n++ {
		if done := d.do(mempool.Put, n, d.content(n)); !errors.Is(done.Err, mempool.ErrFull) || !errors.Is(done.Err, syscall.ENOSPC) {
			t.Fatalf("put on a full disk: %v", done.Err)
		}
	}
	if n := in.Hits(); n != 3 { // 4, 2 and 1 slots
		t.Errorf("%d reservations for 17 puts, want 3", n)
	}
	in.Clear()
	now = now.Add(growPause)
	d.put(3, 20)
	if n := d.found(20); n != 20 {
		t.Errorf("%d of 20 extents are found", n)
	}
	d.close()
	d.open()
	if n := d.found(20); n != 20 {
		t.Errorf("%d of 20 extents are found after an open", n)
	}
	d.close()
}

// TestOlderDirectory: a directory of a version whose index had another form, and that recorded no
// size, opens with all extents.
func TestOlderDirectory(t *testing.T) {
	d := newDisk(t, nil)
	d.put(0, 14)
	d.close()
	index := binary.LittleEndian.AppendUint64([]byte("CPPCKVI\n"), 14) // slots, and no record
	index = binary.LittleEndian.AppendUint64(index, xxh3.Hash(index))
	if err := os.WriteFile(filepath.Join(d.dir, "index"), index, 0o600); err != nil {
		t.Fatal(err)
	}
	card, err := json.Marshal(blockio.Card{Kind: blockio.Disk, Identity: d.c.Identity})
	if err == nil {
		err = os.WriteFile(filepath.Join(d.dir, blockio.IdentityFile), card, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.open()
	if n, w := d.found(14), d.s.Info().Warnings; n != 14 || len(w) != 0 {
		t.Errorf("%d of 14 extents are found, warnings: %q", n, w)
	}
	d.close()
	if card, err := blockio.ReadCard(d.dir); err != nil || card.Bytes != d.c.Bytes {
		t.Errorf("%d bytes are recorded, want %d; %v", card.Bytes, d.c.Bytes, err)
	}
}
