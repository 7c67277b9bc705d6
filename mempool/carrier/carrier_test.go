package carrier

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

var lower = []kv.Tier{kv.TierHost, kv.TierDisk, kv.TierShared}

// TestRoundTrip checks, for each tier and backend, that extents written from the device are read
// back unchanged into other pages, although their own pages were overwritten meanwhile.
func TestRoundTrip(t *testing.T) {
	for name, open := range map[string]func(testing.TB) engine.Backend{"sim": openSim, "cpu": openCPU, "cuda": openCUDA} {
		for _, tier := range lower {
			t.Run(fmt.Sprintf("%s/%v", name, tier), func(t *testing.T) {
				r := newRig(t, open(t), 8, nil, tier)
				xs := r.chain("a", 3*16+8) // a tail too
				var ids []tiering.MoveID
				for i := range xs {
					r.fill(&xs[i], 4*i)
					ids = append(ids, r.write(tier, &xs[i], 4*i))
				}
				r.device(kv.TierDevice, r.pagesOf(&xs[0], 0), r.content(&xs[1])) // overwritten
				r.good(ids...)
				for i, id := range ids {
					if !r.copied[id] {
						t.Errorf("nothing says that the pages of move %d are copied", id)
					}
					ids[i] = r.read(tier, &xs[i], 32+4*i)
				}
				r.good(ids...)
				for i := range xs {
					r.same(&xs[i], 32+4*i)
				}
				r.close()
			})
		}
	}
}

// TestBetweenTiers moves an extent down tier by tier, drops it from the upper ones, and reads it
// from the lowest.
func TestBetweenTiers(t *testing.T) {
	r := newRig(t, openSim(t), 2, nil, lower...)
	x := r.chain("a", 16)[0]
	r.fill(&x, 0)
	r.good(r.write(kv.TierHost, &x, 0))
	r.good(r.begin(tiering.Write, kv.TierHost, kv.TierDisk, &x, 0, second*60))
	r.good(r.begin(tiering.Write, kv.TierDisk, kv.TierShared, &x, 0, second*60))
	r.good(r.begin(tiering.Drop, kv.TierHost, kv.TierHost, &x, 0, 0))
	if e := r.end(r.read(kv.TierHost, &x, 8)); !errors.Is(e.Err, mempool.ErrMiss) {
		t.Errorf("a read of a dropped extent: %v", e.Err)
	}
	r.good(r.read(kv.TierShared, &x, 8))
	r.same(&x, 8)
	m, ok := r.c.Metrics()
	if ok != [kv.Tiers]bool{false, true, true, true} || m[kv.TierHost].Extents != 0 || m[kv.TierDisk].Extents != 1 {
		t.Errorf("%v %+v", ok, m)
	}
	r.close()
}

// hung is a store that can hang: it then reports no ends and ignores cancels.
type hung struct {
	mempool.Store
	mu     sync.Mutex
	hangs  bool
	closed chan struct{} // closed at the end of Close, unless nil
}

func (h *hung) Close() error {
	if h.closed != nil {
		defer close(h.closed)
	}
	return h.Store.Close()
}

func (h *hung) set(hangs bool) {
	h.mu.Lock()
	h.hangs = hangs
	h.mu.Unlock()
}

func (h *hung) is() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hangs
}

func (h *hung) Cancel(id mempool.OpID, cause error) {
	if !h.is() {
		h.Store.Cancel(id, cause)
	}
}

func (h *hung) Poll(dst []mempool.Done) []mempool.Done {
	if h.is() {
		return dst
	}
	return h.Store.Poll(dst)
}

// hangingRig has one disk tier, which hangs from its first operation until told otherwise.
func hangingRig(t *testing.T, buffers int) (*rig, *hung) {
	var h *hung
	r := newRig(t, openSim(t), buffers, func(s mempool.Store) mempool.Store {
		h = &hung{Store: s, hangs: true}
		return h
	}, kv.TierDisk)
	return r, h
}

// TestHang checks that a store that misses a deadline occupies a buffer and nothing else, and that
// an extent which it stores afterwards is dropped.
func TestHang(t *testing.T) {
	r, h := hangingRig(t, 1)
	x := r.chain("a", 16)[0]
	r.fill(&x, 0)
	id := r.begin(tiering.Write, kv.TierDevice, kv.TierDisk, &x, 0, time.Millisecond)
	if e := r.end(id); !errors.Is(e.Err, mempool.ErrDeadline) || !r.copied[id] {
		t.Errorf("a write to a store that hangs: %+v", e)
	}
	if e := r.end(r.write(kv.TierDisk, &x, 0)); !errors.Is(e.Err, mempool.ErrBusy) {
		t.Errorf("its buffer is given to another: %v", e.Err)
	}
	h.set(false)
	r.c.watch.wake()
	r.until(func() bool { return len(r.c.buffers) == 1 && len(r.c.lost) == 0 })
	if m := h.Metrics(); m.Extents != 0 {
		t.Errorf("%d extents are left that no test wrote", m.Extents)
	}
	r.close()
}

// TestLimit checks that a move without a deadline, and one with a far one, end at the carrier's limit.
func TestLimit(t *testing.T) {
	r, h := hangingRig(t, 2)
	xs := r.chain("a", 32)
	r.fill(&xs[0], 0)
	r.fill(&xs[1], 4)
	ids := []tiering.MoveID{r.write(kv.TierDisk, &xs[0], 0), r.begin(tiering.Write, kv.TierDevice, kv.TierDisk, &xs[1], 4, time.Hour)}
	r.until(func() bool { return r.copied[ids[0]] && r.copied[ids[1]] })
	r.c.Limit(time.Now())
	for _, id := range ids {
		if e := r.end(id); !errors.Is(e.Err, mempool.ErrDeadline) {
			t.Errorf("move %d ends with %v", id, e.Err)
		}
	}
	h.set(false)
	r.close()
}

// TestCloseHangs checks that Close returns by its time although a store neither ends its operations nor
// closes, that it says so, and that a store that hangs does not keep others from closing.
func TestCloseHangs(t *testing.T) {
	var host, disk *hung
	r := newRig(t, openSim(t), 2, func(s mempool.Store) mempool.Store {
		if s.Info().Tier == kv.TierHost {
			host = &hung{Store: s, closed: make(chan struct{})}
			return host
		}
		disk = &hung{Store: s, hangs: true, closed: make(chan struct{})}
		return disk
	}, kv.TierHost, kv.TierDisk)
	x := r.chain("a", 16)[0]
	r.fill(&x, 0)
	id := r.write(kv.TierDisk, &x, 0)
	r.until(func() bool { return r.copied[id] })
	r.inject.Plant(blockio.Sync, blockio.Slow, 1, true) // of the disk's close
	if err := r.c.Close(time.Now()); !errors.Is(err, mempool.ErrStuck) || !strings.Contains(err.Error(), "disk") {
		t.Errorf("Close says %v", err)
	}
	<-host.closed
	r.inject.Clear()
	<-disk.closed
	if err := r.tap.Backend.Close(); err != nil {
		t.Error(err)
	}
}

// TestWriteAfterHang writes an extent again whose first write was given up and then succeeds. The
// drop of the first write's extent must not take that of the second.
func TestWriteAfterHang(t *testing.T) {
	for _, early := range []bool{true, false} { // whether the second begins before the first write's store answers
		r, h := hangingRig(t, 2)
		x := r.chain("a", 16)[0]
		r.fill(&x, 0)
		if e := r.end(r.begin(tiering.Write, kv.TierDevice, kv.TierDisk, &x, 0, time.Millisecond)); !errors.Is(e.Err, mempool.ErrDeadline) {
			t.Fatalf("a write to a store that hangs: %+v", e)
		}
		if !early {
			h.set(false)
		}
		again := r.write(kv.TierDisk, &x, 0)
		r.until(func() bool { return r.copied[again] })
		h.set(false)
		r.c.watch.wake()
		r.good(again)
		r.until(func() bool { return len(r.c.lost) == 0 })
		r.good(r.read(kv.TierDisk, &x, 8))
		r.close()
	}
}

// TestCancel checks that a canceled read ends soon and once, frees its buffer and leaves its extent
// in the store.
func TestCancel(t *testing.T) {
	r := newRig(t, openSim(t), 1, nil, kv.TierDisk)
	x := r.chain("a", 16)[0]
	r.fill(&x, 0)
	r.good(r.write(kv.TierDisk, &x, 0))
	r.inject.Plant(blockio.Read, blockio.Slow, 1, true)
	id := r.read(kv.TierDisk, &x, 8)
	<-r.inject.Stuck()
	r.c.Begin(&tiering.Move{ID: id, Kind: tiering.Cancel})
	r.c.Begin(&tiering.Move{ID: id + 7, Kind: tiering.Cancel})
	if e := r.end(id); !errors.Is(e.Err, mempool.ErrCanceled) {
		t.Errorf("a canceled read: %v", e.Err)
	}
	r.inject.Clear()
	r.good(r.read(kv.TierDisk, &x, 8))
	r.same(&x, 8)
	r.close()
}

// TestParentsFirst checks that a write is put after its parent, even if the parent comes from
// another tier and takes longer.
func TestParentsFirst(t *testing.T) {
	r := newRig(t, openSim(t), 4, nil, kv.TierHost, kv.TierDisk)
	xs := r.chain("a", 32)
	r.fill(&xs[0], 0)
	r.fill(&xs[1], 4)
	r.good(r.write(kv.TierHost, &xs[0], 0))
	r.inject.Plant(blockio.Read, blockio.Slow, 1, true)
	parent := r.begin(tiering.Write, kv.TierHost, kv.TierDisk, &xs[0], 0, 0)
	child := r.write(kv.TierDisk, &xs[1], 4)
	<-r.inject.Stuck()
	r.until(func() bool { return r.copied[child] })
	if len(r.c.held) != 1 {
		t.Errorf("%d writes wait for their parents, want 1", len(r.c.held))
	}
	r.inject.Clear()
	r.good(parent, child)

	// If the parent fails, its child fails as well instead of waiting.
	ys := r.chain("b", 32)
	lost := r.begin(tiering.Write, kv.TierHost, kv.TierDisk, &ys[0], 0, 0)
	child = r.write(kv.TierDisk, &ys[1], 4)
	if e := r.end(lost); !errors.Is(e.Err, mempool.ErrMiss) {
		t.Errorf("a write of a missing extent: %v", e.Err)
	}
	if e := r.end(child); !errors.Is(e.Err, mempool.ErrOrphan) {
		t.Errorf("a write whose parent failed: %v", e.Err)
	}
	r.close()
}

// TestFaults checks that whatever fault a store's calls have, each move ends once, no wrong byte
// arrives, no buffer is lost, and extents that could not be read are reported as gone.
func TestFaults(t *testing.T) {
	for _, tier := range lower {
		for _, p := range []blockio.Point{blockio.Read, blockio.Write} {
			for _, f := range []blockio.Fault{blockio.ShortRead, blockio.FlipBit, blockio.NoSpace, blockio.IOError, blockio.NoEntry} {
				for _, forever := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v/%s/%s/forever=%v", tier, p, f, forever), func(t *testing.T) {
						r := newRig(t, openSim(t), 4, nil, tier)
						r.faulty(tier, p, f, forever)
						r.close()
					})
				}
			}
		}
	}
}

func (r *rig) faulty(tier kv.Tier, p blockio.Point, f blockio.Fault, forever bool) {
	xs := r.chain("a", 4*16)
	r.inject.Plant(p, f, 2, forever)
	for i := range xs {
		r.fill(&xs[i], 4*i)
		r.end(r.write(tier, &xs[i], 4*i))
	}
	failed := 0
	for i := range xs {
		e := r.end(r.read(tier, &xs[i], 32))
		if e.Err == nil {
			r.same(&xs[i], 32)
			continue
		}
		failed++
		if len(e.Gone) > 0 && e.GoneFrom != tier {
			r.Errorf("gone from %v are %v", e.GoneFrom, e.Gone)
		}
	}
	if failed == 0 && (p != blockio.Write || f != blockio.FlipBit) { // a flipped bit may hit padding
		r.Errorf("the fault was not felt: %d hits", r.inject.Hits())
	}
	r.inject.Clear()
	if len(r.c.buffers) != 4 || len(r.c.moves) != 0 {
		r.Errorf("%d of 4 buffers are free, %d moves are under way", len(r.c.buffers), len(r.c.moves))
	}
	ys := r.chain("b", 16)
	r.fill(&ys[0], 0)
	r.good(r.write(tier, &ys[0], 0))
	r.good(r.read(tier, &ys[0], 32))
	r.same(&ys[0], 32)
}

// TestDevice checks that an extent stays in its store if the device refuses or fails the copy, and
// that a lost device ends all moves.
func TestDevice(t *testing.T) {
	fail := tiering.MoveID(2)
	r := newRig(t, openFaulty(t, sim.Faults{Move: func(id engine.MoveID) error {
		if tiering.MoveID(id) == fail {
			return errors.New("planted")
		}
		return nil
	}}), 4, nil, kv.TierHost)
	x := r.chain("a", 16)[0]
	r.fill(&x, 0)
	r.good(r.write(kv.TierHost, &x, 0))
	e := r.end(r.read(kv.TierHost, &x, 8))
	if !errors.Is(e.Err, mempool.ErrCanceled) || !errors.Is(e.Err, engine.ErrMove) || len(e.Gone) != 0 {
		t.Errorf("a read that the device failed: %+v", e)
	}
	r.good(r.read(kv.TierHost, &x, 8))
	r.same(&x, 8)
	if err := r.tap.Backend.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []tiering.MoveID{r.read(kv.TierHost, &x, 8), r.write(kv.TierHost, &x, 0)} {
		if e := r.end(id); !errors.Is(e.Err, engine.ErrClosed) {
			t.Errorf("a move on a closed device: %v", e.Err)
		}
	}
	r.close()
}

// TestClose checks that Close ends moves at a store, at the device, and held for a parent.
func TestClose(t *testing.T) {
	r := newRig(t, openSim(t), 4, nil, kv.TierHost, kv.TierDisk)
	xs := r.chain("a", 48)
	for i := range xs {
		r.fill(&xs[i], 4*i)
	}
	r.good(r.write(kv.TierHost, &xs[0], 0))
	r.inject.Plant(blockio.Read, blockio.Slow, 1, true)
	r.begin(tiering.Write, kv.TierHost, kv.TierDisk, &xs[0], 0, 0)
	r.write(kv.TierDisk, &xs[1], 4)
	r.write(kv.TierHost, &xs[1], 4)
	<-r.inject.Stuck()
	r.close()
	if e := r.c.Poll(nil); len(e) != 0 {
		t.Errorf("after Close: %v", e)
	}
	r.c.Begin(&tiering.Move{ID: 99, Kind: tiering.Read, From: kv.TierHost, Extent: xs[0], Pages: r.pagesOf(&xs[0], 0)})
	if e := r.c.Poll(nil); len(e) != 1 || !errors.Is(e[0].Err, mempool.ErrClosed) {
		t.Errorf("a move after Close: %v", e)
	}
}

// TestPart checks that a read leaves pages alone which the device has already, and that it can read
// the first pages of a sibling.
func TestPart(t *testing.T) {
	r := newRig(t, openSim(t), 1, nil, kv.TierHost)
	x, other := r.chain("a", 16)[0], r.chain("b", 16)[0]
	r.fill(&x, 0)
	r.good(r.write(kv.TierHost, &x, 0))
	r.fill(&x, 8)
	r.device(kv.TierDevice, []kv.PageID{9, 10, 11}, r.content(&other)[1:])
	r.last++
	r.c.Begin(&tiering.Move{ID: r.last, Kind: tiering.Read, From: kv.TierHost, Extent: x, Pages: []kv.PageID{kv.NoPage, 9, 10, 11}})
	r.good(r.last)
	r.same(&x, 8)

	part := x
	part.Tokens = x.Tokens[:8]
	r.fill(&other, 16)
	r.good(r.read(kv.TierHost, &part, 16))
	got := [][]byte{make([]byte, r.layout.PageBytes), make([]byte, r.layout.PageBytes)}
	r.device(kv.TierHost, []kv.PageID{17, 18}, got)
	if !bytes.Equal(got[0], r.content(&x)[1]) || !bytes.Equal(got[1], r.content(&other)[2]) {
		t.Error("a read of two pages wrote others, or not these")
	}
	r.close()
}

// TestProbe checks that a probe finds the extents of a store up to the first gap, including those
// that another process wrote, and none if the store fails, hangs or does not exist.
func TestProbe(t *testing.T) {
	r := newRig(t, openSim(t), 1, nil, kv.TierShared)
	xs := r.chain("a", 64)
	for i := range xs[:2] {
		r.fill(&xs[i], 0)
		r.good(r.write(kv.TierShared, &xs[i], 0))
	}
	ask := func(id ProbeID, tier kv.Tier, xs []mempool.Extent, due time.Duration) int {
		r.c.Probe(id, tier, xs, due)
		var got []Probed
		r.until(func() bool { got = r.c.Probed(got); return len(got) > 0 })
		if len(got) != 1 || got[0].ID != id || got[0].Tier != tier {
			t.Fatalf("probe %d is answered by %+v", id, got)
		}
		return len(got[0].Found)
	}
	soon := time.Since(r.c.cfg.Start) + time.Minute
	for i, want := range []int{2, 1, 0} {
		if got := ask(ProbeID(1+i), kv.TierShared, xs[i:], soon); got != want {
			t.Errorf("from extent %d on %d are found, want %d", i, got, want)
		}
	}
	if got := ask(4, kv.TierHost, xs, soon) + ask(5, kv.TierShared, nil, soon); got != 0 {
		t.Errorf("%d extents are found nowhere", got)
	}
	r.close()
	h, hung := hangingRig(t, 1)
	h.c.Probe(1, kv.TierDisk, xs, time.Since(h.c.cfg.Start)+time.Millisecond)
	var got []Probed
	h.until(func() bool { got = h.c.Probed(got); return len(got) > 0 })
	hung.set(false)
	h.close()
}

// TestInvalid checks that an invalid move ends at once.
func TestInvalid(t *testing.T) {
	r := newRig(t, openSim(t), 1, nil, kv.TierDisk)
	x := r.chain("a", 16)[0]
	for _, m := range []tiering.Move{
		{Kind: tiering.Read, From: kv.TierHost, To: kv.TierDevice, Extent: x, Pages: r.pagesOf(&x, 0)},
		{Kind: tiering.Read, From: kv.TierDisk, To: kv.TierDevice, Extent: x, Pages: r.pagesOf(&x, 0)[:1]},
		{Kind: tiering.Write, From: kv.TierDevice, To: kv.TierDisk, Extent: x},
		{Kind: tiering.Write, From: kv.TierDisk, To: kv.TierDisk, Extent: x},
		{Kind: tiering.Drop, From: kv.TierDevice, To: kv.TierDevice, Extent: x},
		{Kind: tiering.Drop, From: 200, To: 200, Extent: x},
	} {
		r.last++
		m.ID = r.last
		r.c.Begin(&m)
		if e := r.end(m.ID); !errors.Is(e.Err, mempool.ErrInvalid) {
			t.Errorf("%+v: %v", m, e.Err)
		}
	}
	r.close()
}

type immobile struct{ engine.Backend }

func TestConfig(t *testing.T) {
	r := newRig(t, openSim(t), 1, nil, kv.TierDisk)
	store := r.c.stores[kv.TierDisk]
	good := Config{Backend: r.tap, Layout: r.layout, Stores: []mempool.Store{store}, Buffers: 1}
	for name, change := range map[string]func(*Config){
		"no mover":   func(c *Config) { c.Backend = immobile{r.tap} },
		"layout":     func(c *Config) { c.Layout.PageBytes *= 2 },
		"extents":    func(c *Config) { c.Layout.ExtentPages *= 2 },
		"two stores": func(c *Config) { c.Stores = append(c.Stores, store) },
		"no stores":  func(c *Config) { c.Stores = nil },
		"no buffers": func(c *Config) { c.Buffers = 0 },
	} {
		c := good
		change(&c)
		if x, err := New(c); err == nil {
			x.Close(time.Now())
			t.Errorf("%s: it opens", name)
		}
	}
	r.close()
}
