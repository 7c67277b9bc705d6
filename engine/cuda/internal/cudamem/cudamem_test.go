package cudamem_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/internal/cudamem"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/kv"
)

const pageBytes = 256

// rig has a pool of eight pages and a stream of kernels.
type rig struct {
	*vm.Context
	t    *testing.T
	pool *cudamem.Memory
	s    cudrv.Stream
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Context: vm.New(ptxvm.Config{}).OpenDevice(), t: t}
	var err error
	if r.s, err = r.NewStream(); err == nil {
		r.pool, err = cudamem.New(r, r.s, 0, pageBytes, 8)
	}
	r.ok(err)
	return r
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) memory(pages int) (m [][]byte) {
	r.t.Helper()
	all, err := r.HostAlloc(pages * pageBytes)
	r.ok(err)
	for i := range pages {
		m = append(m, all[i*pageBytes:(i+1)*pageBytes])
	}
	return m
}

func (r *rig) copy(id uint64, toDevice bool, memory [][]byte, pages ...kv.PageID) cudamem.Copy {
	r.t.Helper()
	e, err := r.NewEvent()
	r.ok(err)
	c := cudamem.Copy{ID: id, ToDevice: toDevice, Pages: pages, Memory: memory, Done: e}
	r.ok(r.pool.Begin(c, r.s))
	return c
}

// TestCopies checks that a copy starts after the kernels and the overlapping copies queued before
// it, on the other stream too, and that kernels after Await see it. The interpreter runs everything
// as late as the order allows, and reports races between streams.
func TestCopies(t *testing.T) {
	r := newRig(t)
	a, b := r.memory(2), r.memory(2)
	r.ok(r.Fill(r.s, r.pool.Page(3), 7, pageBytes)) // in place of a kernel
	r.copy(1, false, a, 3, 5)
	r.copy(2, true, a, 6, 3) // over what 1 reads, from where it writes
	last := r.copy(3, false, b, 6, 3)
	r.ok(r.SyncEvent(last.Done))
	if want := bytes.Repeat([]byte{7}, pageBytes); !bytes.Equal(b[0], want) || b[1][0] != 0 {
		t.Errorf("page 6 holds %d…, page 3 %d…, want 7 and 0", b[0][0], b[1][0])
	}
	r.pool.End(1)
	r.pool.End(2)
	r.pool.End(3)

	in := r.copy(4, true, b, 0, 1)
	r.ok(r.pool.Await(r.s, 4))
	r.ok(r.CopyWithin(r.s, r.pool.Page(2), r.pool.Page(0), pageBytes))
	r.ok(r.SyncStream(r.s))
	r.ok(r.SyncEvent(in.Done))
	r.pool.End(4)
	r.ok(r.pool.Await(r.s, 4)) // ended: no effect
	out := r.copy(5, false, a, 2, 7)
	r.ok(r.SyncEvent(out.Done))
	if a[0][9] != 7 || a[1][9] != 0 {
		t.Errorf("page 2 holds %d…, page 7 %d…, want 7 and 0", a[0][9], a[1][9])
	}
}

// TestCopiesAreIndependent checks that copies of different pages don't wait for each other, and
// kernels don't wait for copies.
func TestCopiesAreIndependent(t *testing.T) {
	r := newRig(t)
	out := r.copy(1, false, r.memory(2), 0, 1)
	in := r.copy(2, true, r.memory(1), 2)
	r.ok(r.SyncEvent(in.Done))
	r.ok(r.SyncStream(r.s))
	if _, err := r.Elapsed(out.Done, out.Done); err == nil {
		t.Error("the copy to the host is done, though nothing waits for it")
	}
	r.ok(r.SyncEvent(out.Done))
}

// TestBadPage checks that Begin panics for a page outside of the pool and forgets the copy: nothing
// waits for it.
func TestBadPage(t *testing.T) {
	r := newRig(t)
	pending := r.copy(1, false, r.memory(2), 0, 1)
	bad := cudamem.Copy{ID: 2, ToDevice: true, Pages: []kv.PageID{1, 8}, Memory: r.memory(2), Done: pending.Done}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Begin took page 8 of 8")
			}
		}()
		r.ok(r.pool.Begin(bad, r.s))
	}()
	r.ok(r.pool.Await(r.s, bad.ID))
	r.ok(r.SyncStream(r.s))
	if _, err := r.Elapsed(pending.Done, pending.Done); err == nil {
		t.Error("the event of the copy is done: Await found the copy")
	}
}

// TestNoMemory checks that a pool that does not fit fails with the driver's error.
func TestNoMemory(t *testing.T) {
	c := vm.New(ptxvm.Config{MemoryBytes: 1 << 20}).OpenDevice()
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cudamem.New(c, s, 0, 1<<19, 3); !errors.Is(err, cudrv.ErrMemory) {
		t.Errorf("%v, want cudrv.ErrMemory", err)
	}
}
