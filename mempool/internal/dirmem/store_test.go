package dirmem

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/record"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

func testConfig(o storetest.Options) Config {
	f := record.FormatOf(&o.Identity, o.Sealer)
	return Config{Dir: o.Dir, Identity: o.Identity, Sealer: o.Sealer, Bytes: int64(o.Extents * f.SlotBytes()), Shrink: true, Round: time.Hour, quiet: true,
		Workers: o.Workers, MaxOps: o.MaxOps, Inject: o.Inject}
}

func harness() storetest.Harness {
	return storetest.Harness{
		Open:    func(o storetest.Options) (mempool.Store, error) { return Open(testConfig(o)) },
		Durable: true,
		Faults:  []blockio.Point{blockio.Read, blockio.Write, blockio.Create, blockio.Rename, blockio.Remove, blockio.Lookup, blockio.Close},
	}
}

func TestMain(m *testing.M) {
	if status, ok := storetest.Child(harness()); ok {
		os.Exit(status)
	}
	os.Exit(leaks.Run(m))
}

func TestStore(t *testing.T) { storetest.Run(t, harness()) }

func TestSealedStore(t *testing.T) {
	h := harness()
	h.Sealer = storetest.Sealer(t, 1, 2)
	storetest.Run(t, h)
}

func TestSealing(t *testing.T) { storetest.RunSealed(t, harness()) }

func TestBrokenStores(t *testing.T) { storetest.RunControls(t, harness()) }

var kills = flag.Int("kills", 5, "how often a process is killed")

func TestKill(t *testing.T) { storetest.Kill(t, harness(), *kills) }

// TestKillOneOfTwo runs two processes on one directory.
func TestKillOneOfTwo(t *testing.T) { storetest.KillOneOfTwo(t, *kills) }

// TestProbeOfOthers checks that a probe finds records that another store has written meanwhile,
// without listing the directory, and none that are being written or were removed.
func TestProbeOfOthers(t *testing.T) {
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 20})
	open := func(in *blockio.Injector) *Store {
		c.Inject = in
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	slow := &blockio.Injector{}
	mine, others := open(nil), open(slow)
	t.Cleanup(slow.Clear)
	l := c.Identity.Layout
	xs := l.AppendExtents(nil, kv.Namespace{Salt: "a"}, make([]kv.Token, 64), nil)
	probe := func(want int) {
		t.Helper()
		then := []mempool.Key{xs[1].Key, xs[2].Key, xs[3].Key}
		if d := do(t, mine, mempool.Op{Kind: mempool.Probe, Extent: xs[0], Then: then}); d.Found != want || (d.Err == nil) != (want > 0) {
			t.Errorf("%d extents are found, want %d: %v", d.Found, want, d.Err)
		}
		if m := mine.Metrics(); m.Extents < want {
			t.Errorf("%d extents are counted, want at least %d", m.Extents, want)
		}
	}
	probe(0)
	for i := range xs[:3] {
		if d := do(t, others, mempool.Op{Kind: mempool.Put, Extent: xs[i], Pages: pages(l, &xs[i])}); d.Err != nil {
			t.Fatal(d.Err)
		}
	}
	probe(3)
	slow.Plant(blockio.Write, blockio.Slow, 1, false)
	if err := others.Submit(mempool.Op{ID: 7, Kind: mempool.Put, Extent: xs[3], Pages: pages(l, &xs[3])}); err != nil {
		t.Fatal(err)
	}
	<-slow.Stuck()
	probe(3)
	slow.Clear()
	<-others.Ready()
	if done := others.Poll(nil); len(done) != 1 || done[0].Err != nil {
		t.Fatalf("%+v", done)
	}
	probe(4)
	for _, i := range []int{3, 2} {
		if d := do(t, others, mempool.Op{Kind: mempool.Drop, Extent: xs[i]}); d.Err != nil {
			t.Fatal(d.Err)
		}
	}
	probe(2)
}

// TestKeeperRuns checks that a store takes the lease by itself, and that Close leaves nothing of it.
func TestKeeperRuns(t *testing.T) {
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 4})
	c.quiet = false
	here := goleak.IgnoreCurrent()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if d := do(t, s, mempool.Op{Kind: mempool.Flush}); d.Err != nil {
		t.Fatal(d.Err)
	}
	s.keeper.mu.Lock()
	has := s.keeper.has
	s.keeper.mu.Unlock()
	if !has {
		t.Error("no process has the lease")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	leaks.Check(t, here)
	if _, err := os.Stat(s.keeper.lease); err == nil {
		t.Error("the lease is left")
	}
}

func do(t *testing.T, s *Store, op mempool.Op) mempool.Done {
	t.Helper()
	op.ID = 1
	if err := s.Submit(op); err != nil {
		t.Fatal(err)
	}
	for {
		<-s.Ready()
		if done := s.Poll(nil); len(done) > 0 {
			return done[0]
		}
	}
}

func pages(l mempool.Layout, x *mempool.Extent) [][]byte {
	p := make([][]byte, l.Pages(x))
	for i := range p {
		p[i] = make([]byte, l.PageBytes)
	}
	return p
}

// TestLease checks that one of two stores is the keeper, and that the other takes over when the
// first is closed or has not renewed its lease.
func TestLease(t *testing.T) {
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 4})
	open := func() *Store {
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.keeper.round(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := open()
	b := open()
	if !a.keeper.has || b.keeper.has {
		t.Fatalf("a has the lease: %v, b: %v", a.keeper.has, b.keeper.has)
	}
	old := time.Now().Add(-2 * leaseRounds * c.Round)
	if err := os.Chtimes(a.keeper.lease, old, old); err != nil {
		t.Fatal(err)
	}
	if err := b.keeper.round(); err != nil || !b.keeper.has {
		t.Fatalf("b does not take a lease that has ended: %v", err)
	}
	if err := a.keeper.round(); err != nil || a.keeper.has {
		t.Fatalf("a has a lease that it lost: %v", err)
	}
	b.Close()
	if err := a.keeper.round(); err != nil || !a.keeper.has {
		t.Fatalf("a does not take a lease that was given back: %v", err)
	}
	a.Close()
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "*", "tmp", "*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestQuota checks that above 0.90 of the quota the keeper removes records down to 0.85, children
// before parents and least recently used first, and that other stores notice.
func TestQuota(t *testing.T) {
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 20})
	a, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.keeper.round(); err != nil {
		t.Fatal(err)
	}
	b, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	l := c.Identity.Layout
	var all []mempool.Extent
	for i := range 5 {
		all = append(all, l.AppendExtents(nil, kv.Namespace{Salt: string(rune('a' + i))}, make([]kv.Token, 64), nil)...)
	}
	now := time.Now()
	put := func(i int) {
		t.Helper()
		if d := do(t, b, mempool.Op{Kind: mempool.Put, Extent: all[i], Pages: pages(l, &all[i])}); d.Err != nil {
			t.Fatal(d.Err)
		}
		used := now.Add(time.Duration(i-100) * time.Minute) // parents are older than children
		if err := os.Chtimes(b.path(b.name(all[i].Key)), used, used); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 18 {
		put(i)
	}
	for _, tc := range []struct{ put, left int }{{-1, 18}, {18, 17}} { // at 0.90, and one more
		if tc.put >= 0 {
			put(tc.put)
		}
		if err := a.keeper.round(); err != nil {
			t.Fatal(err)
		}
		if m := a.Metrics(); m.Extents != tc.left {
			t.Fatalf("%d extents are left, want %d", m.Extents, tc.left)
		}
	}
	for i, want := range []error{nil, nil, mempool.ErrMiss, mempool.ErrMiss, nil} {
		if d := do(t, b, mempool.Op{Kind: mempool.Probe, Extent: all[i]}); (d.Err == nil) != (want == nil) {
			t.Errorf("extent %d: %v, want %v", i, d.Err, want)
		}
	}
}

// TestKeeperReadError checks that the keeper keeps a record whose header it fails to read, because the
// fault may pass or be its own, and removes one whose file ends within the header.
func TestKeeperReadError(t *testing.T) {
	c := testConfig(storetest.Options{Dir: t.TempDir(), Identity: storetest.Identity(), Extents: 4})
	c.Inject = &blockio.Injector{}
	s := open(t, c)
	x := first(c)
	if d := do(t, s, mempool.Op{Kind: mempool.Put, Extent: x, Pages: pages(c.Identity.Layout, &x)}); d.Err != nil {
		t.Fatal(d.Err)
	}
	check := func(name string, header bool, left error) {
		t.Helper()
		clear(s.keeper.parents)
		if _, ok := s.keeper.parent(s.name(x.Key)); ok != header {
			t.Errorf("%s: the header is read: %v, want %v", name, ok, header)
		}
		c.Inject.Clear()
		if d := do(t, s, mempool.Op{Kind: mempool.Probe, Extent: x}); !errors.Is(d.Err, left) {
			t.Errorf("%s: the record then: %v, want %v", name, d.Err, left)
		}
	}
	for _, f := range []blockio.Fault{blockio.IOError, blockio.ShortRead, blockio.FlipBit} {
		c.Inject.Plant(blockio.Read, f, 1, false)
		check(f.String(), f == blockio.FlipBit, nil) // a flipped bit of one read may hit padding
	}
	for _, f := range []blockio.Fault{blockio.NoFiles, blockio.Stale} {
		c.Inject.Plant(blockio.Lookup, f, 1, true)
		check(f.String(), false, nil)
	}
	check("sound", true, nil)
	if err := os.Truncate(s.path(s.name(x.Key)), 100); err != nil {
		t.Fatal(err)
	}
	check("cut short", false, mempool.ErrMiss)
	if _, err := os.Stat(s.path(s.name(x.Key))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a record that is cut short is left: %v", err)
	}
}
