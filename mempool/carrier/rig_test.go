package carrier

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/dirmem"
	"github.com/coppice-llm/coppice/mempool/internal/diskmem"
	"github.com/coppice-llm/coppice/mempool/internal/hostmem"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// nano is the directory of a model for the cpu backend.
var nano string

func TestMain(m *testing.M) {
	tmp, err := os.MkdirTemp("", "coppice-carrier-")
	if err == nil {
		nano = filepath.Join(tmp, "nano")
		err = random.Generate(nano, random.Spec{Preset: random.Nano, Seed: 1})
	}
	if err != nil {
		panic(err)
	}
	code := leaks.Run(m)
	os.RemoveAll(tmp)
	os.Exit(code)
}

const (
	pages  = 64
	second = time.Second
)

func openSim(t testing.TB) engine.Backend { return openFaulty(t, sim.Faults{}) }

func openFaulty(t testing.TB, f sim.Faults) engine.Backend {
	b, err := sim.Open(sim.Config{PageTokens: 4, Pages: pages, Faults: f})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openCPU(t testing.TB) engine.Backend {
	m, err := model.Open(nano)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := cpu.Open(m, cpu.Config{PageTokens: 4, Pages: pages, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// openCUDA opens the cuda backend on the interpreter, whose host memory and copies behave like a
// driver's.
func openCUDA(t testing.TB) engine.Backend {
	m, err := model.Open(nano)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := backends.Open("ptxvm", backends.Options{Model: m, PageTokens: 4, KVTokens: 4 * pages})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tap is a backend that counts its host memory and keeps the results of the test's own moves.
type tap struct {
	engine.Backend
	engine.Mover
	allocated atomic.Int64
	own       map[engine.MoveID]error
}

// own is the first number of the test's own moves.
const own = 1 << 40

func (p *tap) HostAlloc(n int) ([]byte, error) {
	b, err := p.Mover.HostAlloc(n)
	if err == nil {
		p.allocated.Add(1)
	}
	return b, err
}

func (p *tap) HostFree(b []byte) { p.allocated.Add(-1); p.Mover.HostFree(b) }

func (p *tap) Moved(dst []engine.Moved) []engine.Moved {
	for _, d := range p.Mover.Moved(nil) {
		if d.ID >= own {
			p.own[d.ID] = d.Err
		} else {
			dst = append(dst, d)
		}
	}
	return dst
}

// rig drives a carrier and checks that each move ends once.
type rig struct {
	testing.TB
	c       *Carrier
	tap     *tap
	inject  *blockio.Injector
	layout  mempool.Layout
	last    tiering.MoveID
	lastOwn engine.MoveID
	copied  map[tiering.MoveID]bool
	ended   map[tiering.MoveID]Ended
}

// newRig opens a carrier with stores of some tiers. wrap may be nil.
func newRig(t testing.TB, b engine.Backend, buffers int, wrap func(mempool.Store) mempool.Store, tiers ...kv.Tier) *rig {
	t.Helper()
	info := b.Info()
	r := &rig{TB: t, inject: &blockio.Injector{}, copied: map[tiering.MoveID]bool{}, ended: map[tiering.MoveID]Ended{}}
	r.tap = &tap{Backend: b, Mover: b.(engine.Mover), own: map[engine.MoveID]error{}}
	r.layout = mempool.Layout{PageTokens: info.PageTokens, PageBytes: info.PageBytes, ExtentPages: 4}
	id := mempool.Identity{ModelID: info.ModelID, NumericsID: info.NumericsID, KVType: info.KVType, PageLayout: mempool.PageLayout, Layout: r.layout}
	var stores []mempool.Store
	for _, tier := range tiers {
		var s mempool.Store
		var err error
		switch tier {
		case kv.TierHost:
			s, err = hostmem.Open(hostmem.Config{Identity: id, Bytes: 1 << 20, Inject: r.inject})
		case kv.TierDisk:
			s, err = diskmem.Open(diskmem.Config{Dir: t.TempDir(), Identity: id, Bytes: 4 << 20, SegmentBytes: 1 << 20, Inject: r.inject})
		default:
			s, err = dirmem.Open(dirmem.Config{Dir: t.TempDir(), Identity: id, Bytes: 4 << 20, Inject: r.inject})
		}
		if err != nil {
			t.Fatal(err)
		}
		if wrap != nil {
			s = wrap(s)
		}
		stores = append(stores, s)
	}
	c, err := New(Config{Backend: r.tap, Layout: r.layout, Stores: stores, Buffers: buffers, Start: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	r.c = c
	return r
}

// close closes everything and requires that no move, buffer or host memory is left.
func (r *rig) close() {
	r.Helper()
	r.inject.Clear()
	for range 2 {
		if err := r.c.Close(time.Now().Add(time.Minute)); err != nil {
			r.Error(err)
		}
	}
	if n := r.tap.allocated.Load(); n != 0 {
		r.Errorf("%d buffers are left", n)
	}
	if err := r.tap.Backend.Close(); err != nil {
		r.Error(err)
	}
}

// chain makes the extents of a sequence of n tokens.
func (r *rig) chain(salt string, n int) []mempool.Extent {
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	return r.layout.AppendExtents(nil, kv.Namespace{Salt: salt}, tokens, nil)
}

// pagesOf returns page ids for an extent, from at on.
func (r *rig) pagesOf(x *mempool.Extent, at int) []kv.PageID {
	ids := make([]kv.PageID, r.layout.Pages(x))
	for i := range ids {
		ids[i] = kv.PageID(at + i)
	}
	return ids
}

// content returns the pages of x: bytes derived from its key.
func (r *rig) content(x *mempool.Extent) [][]byte {
	rng := rand.NewChaCha8(x.Key)
	all := make([][]byte, r.layout.Pages(x))
	for i := range all {
		all[i] = make([]byte, r.layout.PageBytes)
		rng.Read(all[i])
	}
	return all
}

// device copies memory to pages of the device, or pages of the device to memory.
func (r *rig) device(to kv.Tier, ids []kv.PageID, memory [][]byte) {
	r.Helper()
	r.lastOwn++
	m := engine.Move{ID: own + r.lastOwn, From: kv.TierHost, To: to, Pages: ids}
	if to != kv.TierDevice {
		m.From = kv.TierDevice
	}
	host, err := r.tap.Mover.HostAlloc(len(ids) * r.layout.PageBytes)
	if err != nil {
		r.Fatal(err)
	}
	defer r.tap.Mover.HostFree(host)
	pinned := slices.Collect(slices.Chunk(host, r.layout.PageBytes))
	for i := range memory {
		copy(pinned[i], memory[i])
	}
	defer func() {
		for i := range memory {
			copy(memory[i], pinned[i])
		}
	}()
	if err := r.tap.Move(&m, pinned); err != nil {
		r.Fatal(err)
	}
	r.until(func() bool { _, ok := r.tap.own[m.ID]; return ok })
	if err := r.tap.own[m.ID]; err != nil {
		r.Fatal(err)
	}
}

// fill writes an extent's content to its pages, from at on.
func (r *rig) fill(x *mempool.Extent, at int) {
	r.Helper()
	r.device(kv.TierDevice, r.pagesOf(x, at), r.content(x))
}

// same requires that pages of the device hold an extent's content.
func (r *rig) same(x *mempool.Extent, at int) {
	r.Helper()
	got := make([][]byte, r.layout.Pages(x))
	for i := range got {
		got[i] = make([]byte, r.layout.PageBytes)
	}
	r.device(kv.TierHost, r.pagesOf(x, at), got)
	for i, want := range r.content(x) {
		if !bytes.Equal(got[i], want) {
			r.Fatalf("page %d has wrong bytes", at+i)
		}
	}
}

// begin begins a move; pages of the device are those from at on.
func (r *rig) begin(kind tiering.Kind, from, to kv.Tier, x *mempool.Extent, at int, wait time.Duration) tiering.MoveID {
	r.last++
	m := tiering.Move{ID: r.last, Kind: kind, From: from, To: to, Extent: *x}
	if wait > 0 {
		m.Deadline = time.Since(r.c.cfg.Start) + wait
	}
	if from == kv.TierDevice || to == kv.TierDevice {
		m.Pages = r.pagesOf(x, at)
	}
	r.c.Begin(&m)
	return m.ID
}

func (r *rig) write(to kv.Tier, x *mempool.Extent, at int) tiering.MoveID {
	return r.begin(tiering.Write, kv.TierDevice, to, x, at, 0)
}

func (r *rig) read(from kv.Tier, x *mempool.Extent, at int) tiering.MoveID {
	return r.begin(tiering.Read, from, kv.TierDevice, x, at, 0)
}

// until polls until a condition holds.
func (r *rig) until(ok func() bool) {
	r.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		for _, e := range r.c.Poll(nil) {
			if _, twice := r.ended[e.ID]; twice || e.ID == 0 || e.ID > r.last || e.Copied && r.copied[e.ID] {
				r.Fatalf("move %d ends twice, or was never begun: %+v", e.ID, e)
			}
			if e.Copied {
				r.copied[e.ID] = true
			} else {
				r.ended[e.ID] = e
			}
		}
		if ok() {
			return
		}
		select {
		case <-r.c.Ready():
		case <-limit.C:
			r.Fatalf("nothing more can happen; %d moves have not ended", len(r.c.moves))
		}
	}
}

// end waits for a move's end.
func (r *rig) end(id tiering.MoveID) Ended {
	r.Helper()
	r.until(func() bool { _, ok := r.ended[id]; return ok })
	return r.ended[id]
}

// good waits for the end of moves, which must succeed.
func (r *rig) good(ids ...tiering.MoveID) {
	r.Helper()
	for _, id := range ids {
		if e := r.end(id); e.Err != nil {
			r.Fatalf("move %d: %v", id, e.Err)
		}
	}
}
