package storetest

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// rig drives one store and checks its results.
type rig struct {
	testing.TB
	h      Harness
	opts   Options
	store  mempool.Store
	layout mempool.Layout
	last   mempool.OpID
	ended  map[mempool.OpID]mempool.Done

	patience time.Duration // bounds every wait: a store that takes longer has lost an operation
}

// patience bounds the waits of rigs whose store is expected to be sound.
const patience = time.Minute

// rigOf returns a rig whose store, in dir and with room for that many extents, is not open yet.
func rigOf(t testing.TB, h Harness, dir string, extents int) *rig {
	r := &rig{TB: t, h: h, opts: h.options(dir, extents, 3, 64), ended: map[mempool.OpID]mempool.Done{}, patience: patience}
	r.layout = r.opts.Identity.Layout
	return r
}

func newRig(t testing.TB, h Harness) *rig {
	r := rigOf(t, h, t.TempDir(), 24)
	r.open()
	t.Cleanup(func() { // in case the check fails early
		r.opts.Inject.Clear()
		r.store.Close()
	})
	return r
}

// sub runs part of a check with its own store, as a subtest if the TB is a *testing.T.
func (r *rig) sub(name string, run func(*rig)) {
	inner := func(t testing.TB) {
		s := newRig(t, r.h)
		s.patience = r.patience
		run(s)
		s.close()
		temporary(t, s.opts.Dir)
	}
	if t, ok := r.TB.(*testing.T); ok {
		t.Run(name, func(t *testing.T) { inner(t) })
		return
	}
	if v, ok := r.TB.(*verdict); !ok || v.found.Len() == 0 {
		inner(r.TB)
	}
}

func (r *rig) open() {
	r.Helper()
	s, err := r.h.Open(r.opts)
	if err != nil {
		r.Fatal(err)
	}
	r.store = s
}

func (r *rig) close() {
	r.Helper()
	r.opts.Inject.Clear()
	if err := r.store.Close(); err != nil {
		r.Error(err)
	}
}

func (r *rig) reopen() {
	r.Helper()
	r.close()
	r.open()
}

// chain returns the extents of a sequence of n tokens, from, from+1 and so on, in the namespace with
// the given salt.
func (r *rig) chain(salt string, from, n int) []mempool.Extent {
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = kv.Token(from + i)
	}
	return r.layout.AppendExtents(nil, kv.Namespace{Model: "m", Salt: salt}, tokens, nil)
}

// content returns the pages of x: bytes derived from its key and the page's index.
func (r *rig) content(x *mempool.Extent) [][]byte {
	pages := r.memory(x)
	for i := range pages {
		for j := range pages[i] {
			pages[i][j] = x.Key[j%len(x.Key)] + byte(i) + byte(j/len(x.Key))
		}
	}
	return pages
}

func (r *rig) memory(x *mempool.Extent) [][]byte {
	pages := make([][]byte, r.layout.Pages(x))
	for i := range pages {
		pages[i] = make([]byte, r.layout.PageBytes)
	}
	return pages
}

func (r *rig) sum(x *mempool.Extent) uint64 { return checksum.Sum(bytes.Join(r.content(x), nil)) }

// submit begins an operation and returns its number.
func (r *rig) submit(op mempool.Op) mempool.OpID {
	r.Helper()
	r.last++
	op.ID = r.last
	if err := r.store.Submit(op); err != nil {
		r.Fatalf("%s: %v", op.Kind, err)
	}
	return op.ID
}

// poll takes the results of operations that have ended, and fails if an operation ends twice.
func (r *rig) poll() {
	r.Helper()
	for _, d := range r.store.Poll(nil) {
		if _, twice := r.ended[d.ID]; twice || d.ID > r.last {
			r.Errorf("operation %d ended twice, or never began: %+v", d.ID, d)
		}
		r.ended[d.ID] = d
	}
}

// wait waits for the end of an operation and returns its result.
func (r *rig) wait(id mempool.OpID) mempool.Done {
	r.Helper()
	limit := time.NewTimer(r.patience)
	defer limit.Stop()
	for {
		r.poll()
		if d, ok := r.ended[id]; ok {
			return d
		}
		select {
		case <-r.store.Ready():
		case <-limit.C:
			r.Fatalf("operation %d does not end", id)
		}
	}
}

func (r *rig) do(op mempool.Op) mempool.Done { r.Helper(); return r.wait(r.submit(op)) }

// beginPut begins a put of x and returns its number.
func (r *rig) beginPut(x *mempool.Extent) mempool.OpID {
	r.Helper()
	return r.submit(mempool.Op{Kind: mempool.Put, Extent: *x, Pages: r.content(x)})
}

// beginPuts begins puts of n extents without parents, and returns their numbers.
func (r *rig) beginPuts(n int) (ids []mempool.OpID) {
	r.Helper()
	for i := range n {
		ids = append(ids, r.beginPut(&r.chain("a", 100*i, 16)[0]))
	}
	return ids
}

func (r *rig) tryPut(x *mempool.Extent) mempool.Done {
	r.Helper()
	return r.wait(r.beginPut(x))
}

func (r *rig) put(xs ...mempool.Extent) {
	r.Helper()
	for i := range xs {
		if d := r.tryPut(&xs[i]); d.Err != nil {
			r.Fatalf("put of extent %d: %v", i, d.Err)
		}
	}
}

// tryGet reads x. If that succeeds, the bytes must be right.
func (r *rig) tryGet(x *mempool.Extent) mempool.Done {
	r.Helper()
	pages := r.memory(x)
	d := r.do(mempool.Op{Kind: mempool.Get, Extent: *x, Pages: pages})
	if d.Err == nil {
		same(r, pages, r.content(x))
	}
	return d
}

func (r *rig) get(xs ...mempool.Extent) {
	r.Helper()
	for i := range xs {
		if d := r.tryGet(&xs[i]); d.Err != nil {
			r.Fatalf("get of extent %d: %v", i, d.Err)
		} else if d.Sum != r.sum(&xs[i]) || d.Bytes != r.layout.Bytes(&xs[i]) {
			r.Fatalf("get of extent %d reports sum %x and %d bytes", i, d.Sum, d.Bytes)
		}
	}
}

func same(t testing.TB, got, want [][]byte) {
	t.Helper()
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("page %d of %d has wrong bytes", i, len(want))
		}
	}
}

// expect requires that an operation failed with want.
func (r *rig) expect(d mempool.Done, want error) {
	r.Helper()
	if !errors.Is(d.Err, want) {
		r.Errorf("%s of %s: %v, want %v", d.Kind, d.Key.Short(), d.Err, want)
	}
}

func (r *rig) drop(x *mempool.Extent) mempool.Done {
	r.Helper()
	return r.do(mempool.Op{Kind: mempool.Drop, Extent: *x})
}

// remove drops extents, the last one first, which must succeed.
func (r *rig) remove(xs ...mempool.Extent) {
	r.Helper()
	for _, x := range slices.Backward(xs) {
		if d := r.drop(&x); d.Err != nil {
			r.Error(d.Err)
		}
	}
}

// flush requires that a Flush succeeds.
func (r *rig) flush() {
	r.Helper()
	if d := r.do(mempool.Op{Kind: mempool.Flush}); d.Err != nil {
		r.Fatal(d.Err)
	}
}

// has reports whether a Probe finds an extent.
func (r *rig) has(x *mempool.Extent) bool {
	r.Helper()
	d := r.do(mempool.Op{Kind: mempool.Probe, Extent: *x})
	if d.Err != nil && !errors.Is(d.Err, mempool.ErrMiss) {
		r.Errorf("probe of %s: %v", x.Key.Short(), d.Err)
	}
	return d.Err == nil
}

// balance requires that the store's metrics count this many extents, no open operation, and a
// size that agrees.
func (r *rig) balance(extents int) {
	r.Helper()
	m := r.store.Metrics()
	if m.Extents != extents || m.OpenOps != 0 || m.Bytes > m.CapacityBytes || (m.Bytes == 0) != (extents == 0) {
		r.Errorf("%d extents should be here:\n%v", extents, m)
	}
}

// temporary requires that no temporary files are left, and that no file is readable by all users. On Windows
// a mode has no such bits: files have the access rights of their directory.
func temporary(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), blockio.TempPrefix) {
			t.Errorf("%s is left", path)
		}
		if err != nil || path == dir {
			return err
		}
		if st, err := d.Info(); err == nil && st.Mode()&0o007 != 0 && runtime.GOOS != "windows" {
			t.Errorf("%s has mode %v: all users can read prompts", path, st.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
