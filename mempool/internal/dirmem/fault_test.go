package dirmem

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// small returns the configuration of a store for four extents, in a new directory.
func small(t *testing.T) Config {
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 4})
	c.Inject = &blockio.Injector{}
	return c
}

// open opens a store that the test's end closes.
func open(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// first returns a full extent without a parent.
func first(c Config) mempool.Extent {
	l := c.Identity.Layout
	return l.AppendExtents(nil, kv.Namespace{Model: "m"}, make([]kv.Token, l.ExtentTokens()), nil)[0]
}

// put, get and probe run one operation on an extent.
func put(t *testing.T, s *Store, x mempool.Extent) mempool.Done {
	t.Helper()
	return do(t, s, mempool.Op{Kind: mempool.Put, Extent: x, Pages: pages(s.cfg.Identity.Layout, &x)})
}

func get(t *testing.T, s *Store, x mempool.Extent) mempool.Done {
	t.Helper()
	return do(t, s, mempool.Op{Kind: mempool.Get, Extent: x, Pages: pages(s.cfg.Identity.Layout, &x)})
}

func probe(t *testing.T, s *Store, x mempool.Extent) mempool.Done {
	t.Helper()
	return do(t, s, mempool.Op{Kind: mempool.Probe, Extent: x})
}

// TestHiddenForAWhile checks that a record which could not be read counts as missing until
// Config.forget has passed, that its bytes still count for the quota, and that it is found then.
func TestHiddenForAWhile(t *testing.T) {
	for _, tc := range []struct {
		forget time.Duration
		left   error
	}{{time.Hour, mempool.ErrMiss}, {time.Nanosecond, nil}} {
		c := small(t)
		c.forget = tc.forget
		s := open(t, c)
		x := first(c)
		if d := put(t, s, x); d.Err != nil {
			t.Fatal(d.Err)
		}
		c.Inject.Plant(blockio.Lookup, blockio.NoFiles, 1, false)
		if d := get(t, s, x); d.Err == nil || len(d.Gone) != 1 {
			t.Errorf("a read without a descriptor: %+v", d)
		}
		c.Inject.Clear()
		if fits, release := s.reserve(c.Bytes); fits {
			t.Error("the quota does not count the file of a hidden record")
			release()
		}
		if err := s.keeper.round(); err != nil {
			t.Fatal(err)
		}
		if d := probe(t, s, x); !errors.Is(d.Err, tc.left) {
			t.Errorf("hidden for %v: %v, want %v", tc.forget, d.Err, tc.left)
		}
		if n := s.Metrics().Extents; (n == 1) != (tc.left == nil) {
			t.Errorf("hidden for %v: %d extents are counted", tc.forget, n)
		}
	}
}

// TestDamagedIsRemoved checks that a read removes a record with wrong bytes.
func TestDamagedIsRemoved(t *testing.T) {
	c := small(t)
	s := open(t, c)
	x := first(c)
	for name, spoil := range map[string]func(path string) error{
		"header": func(path string) error { return flip(path, 30) },
		"pages":  func(path string) error { return flip(path, int64(s.format.HeaderBytes())+5) },
		"short":  func(path string) error { return os.Truncate(path, 4096) },
		"long":   func(path string) error { return os.Truncate(path, 700<<20) },
		"zeros": func(path string) error {
			return errors.Join(os.Truncate(path, 0), os.Truncate(path, int64(s.info.SlotBytes)))
		},
		"other": func(path string) error {
			y := s.cfg.Identity.Layout.AppendExtents(nil, kv.Namespace{Model: "n"}, make([]kv.Token, len(x.Tokens)), nil)[0]
			return errors.Join(put(t, s, y).Err, os.Rename(s.path(s.name(y.Key)), path))
		},
	} {
		if d := put(t, s, x); d.Err != nil {
			t.Fatal(d.Err)
		}
		if err := spoil(s.path(s.name(x.Key))); err != nil {
			t.Fatal(err)
		}
		if d := get(t, s, x); !errors.Is(d.Err, mempool.ErrCorrupt) || len(d.Gone) != 1 {
			t.Errorf("%s: %+v", name, d)
		}
		if _, err := os.Stat(s.path(s.name(x.Key))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the damaged record is left: %v", name, err)
		}
	}
}

// flip flips a bit of a file's byte.
func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b := []byte{0}
	_, err = f.ReadAt(b, at)
	b[0] ^= 16
	_, e := f.WriteAt(b, at)
	return errors.Join(err, e, f.Close())
}

// TestOtherIdentityReplaced puts the record of another model under a key's name. It must not be served,
// and the next put must replace it.
func TestOtherIdentityReplaced(t *testing.T) {
	c := small(t)
	other := c
	other.Identity.ModelID = "another"
	x := first(c)
	theirs, mine := open(t, other), open(t, c)
	if d := put(t, theirs, x); d.Err != nil {
		t.Fatal(d.Err)
	}
	if err := os.Mkdir(filepath.Dir(mine.path(mine.name(x.Key))), blockio.DirMode); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(theirs.path(theirs.name(x.Key)), mine.path(mine.name(x.Key))); err != nil {
		t.Fatal(err)
	}
	if d := get(t, mine, x); !errors.Is(d.Err, mempool.ErrForeign) || len(d.Gone) != 1 {
		t.Errorf("a record of another model: %+v", d)
	}
	if d := put(t, mine, x); d.Err != nil || d.Bytes == 0 {
		t.Errorf("the put of an extent whose place another model's record takes: %+v", d)
	}
	if d := get(t, mine, x); d.Err != nil {
		t.Errorf("then: %v", d.Err)
	}
	if d := get(t, theirs, x); d.Err != nil {
		t.Errorf("the other model's own record: %v", d.Err)
	}
}

// TestForeignLease checks that a lease that is none, or is dated in the future, is taken over and costs
// no memory, and that a lease within its time is left alone.
func TestForeignLease(t *testing.T) {
	write := func(age time.Duration) func(path string) error {
		return func(path string) error {
			at := time.Now().Add(-age)
			return errors.Join(os.WriteFile(path, []byte("another\n"), 0o600), os.Chtimes(path, at, at))
		}
	}
	for name, tc := range map[string]struct {
		plant func(path string) error
		taken bool
	}{
		"young":     {write(2 * time.Hour), false},
		"ended":     {write(leaseRounds*time.Hour + time.Minute), true},
		"future":    {write(-time.Hour), true},
		"far":       {write(-24 * 365 * time.Hour), true},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, true},
		"full directory": {func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
		}, true},
		"link to /dev/zero": {func(path string) error { return os.Symlink("/dev/zero", path) }, true},
		"huge and young": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 700<<20))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := small(t) // a round has an hour
			s := open(t, c)
			if err := tc.plant(s.keeper.lease); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := s.keeper.round()
			runtime.ReadMemStats(&after)
			if err != nil || s.keeper.has != tc.taken {
				t.Errorf("the lease is taken: %v, want %v, %v", s.keeper.has, tc.taken, err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("a round allocates %d bytes", n)
			}
			if err := s.keeper.round(); err != nil || s.keeper.has != tc.taken {
				t.Errorf("a round later the lease is taken: %v, want %v, %v", s.keeper.has, tc.taken, err)
			}
		})
	}
}

// TestUpkeepReported checks that rounds that fail are reported once, with the cause, and once when they
// succeed again.
func TestUpkeepReported(t *testing.T) {
	c := small(t)
	c.quiet, c.Round = false, time.Millisecond
	reports := make(chan error, 99)
	c.Upkeep = func(err error) { reports <- err }
	s := open(t, c)
	tmp, aside := filepath.Join(s.dir, "tmp"), filepath.Join(s.dir, "aside")
	if err := os.Rename(tmp, aside); err != nil {
		t.Fatal(err)
	}
	if err := <-reports; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("rounds without a directory for their files: %v", err)
	}
	for range 3 {
		if err := s.keeper.round(); err == nil {
			t.Error("a round succeeds")
		}
	}
	if err := os.Rename(aside, tmp); err != nil {
		t.Fatal(err)
	}
	if err := <-reports; err != nil {
		t.Errorf("the second report is %v, want that the rounds succeed again", err)
	}
}
