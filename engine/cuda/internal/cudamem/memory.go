package cudamem

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/kv"
)

// Memory holds the pages of a pool in one allocation of device memory, one after another. Closing
// the context frees it.
type Memory struct {
	ctx              cudrv.Context
	base             cudrv.Ptr
	pageBytes, pages int
	toHost, toDevice cudrv.Stream
	queued           cudrv.Event // recorded after the kernels before a copy

	mu   sync.Mutex
	open []Copy // copies between Begin and End, in order
}

// Copy is a copy of pages to pinned memory or from it.
type Copy struct {
	ID       uint64 // unique among the copies between Begin and End
	ToDevice bool
	Pages    []kv.PageID
	Memory   [][]byte    // from HostAlloc, one page each
	Done     cudrv.Event // recorded after the copy
}

// New returns pages pages of pageBytes bytes each, which it sets to zero on stream s. They are at base, which
// the caller keeps allocated; if base is 0, New allocates them. It fails with the driver's error, for example
// cudrv.ErrMemory.
func New(ctx cudrv.Context, s cudrv.Stream, base cudrv.Ptr, pageBytes, pages int) (*Memory, error) {
	m := &Memory{ctx: ctx, base: base, pageBytes: pageBytes, pages: pages}
	var err error
	for _, to := range []*cudrv.Stream{&m.toHost, &m.toDevice} {
		if *to, err = ctx.NewStream(); err != nil {
			return nil, err
		}
	}
	if m.queued, err = ctx.NewEvent(); err != nil {
		return nil, err
	}
	if base == 0 {
		m.base, err = ctx.Alloc(pageBytes * pages)
	}
	if err != nil {
		return nil, fmt.Errorf("cudamem: %d pages of %d bytes: %w", pages, pageBytes, err)
	}
	return m, ctx.Fill(s, m.base, 0, pageBytes*pages)
}

// Base returns the address of the first page.
func (m *Memory) Base() cudrv.Ptr { return m.base }

// Page returns the address of a page.
func (m *Memory) Page(id kv.PageID) cudrv.Ptr { return m.base + cudrv.Ptr(m.pageBytes*int(id)) }

// Begin queues copy c and returns. The copy starts after everything that was queued on the stream
// kernels, and after earlier copies that touch the same pages or host memory. Memory owns c's
// slices until End. Begin panics if a page is not in the pool or its memory is not a page long; then
// the copy has not begun.
func (m *Memory) Begin(c Copy, kernels cudrv.Stream) error {
	for i, id := range c.Pages {
		if id < 0 || int(id) >= m.pages || len(c.Memory[i]) != m.pageBytes {
			panic(fmt.Sprintf("cudamem: page %d of %d to or from %d bytes, want %d", id, m.pages, len(c.Memory[i]), m.pageBytes))
		}
	}
	s := m.toHost
	if c.ToDevice {
		s = m.toDevice
	}
	if err := m.ctx.Record(m.queued, kernels); err != nil {
		return err
	}
	if err := m.ctx.Wait(s, m.queued); err != nil {
		return err
	}
	if err := m.order(&c, s); err != nil {
		return err
	}
	for i, id := range c.Pages {
		var err error
		if c.ToDevice {
			err = m.ctx.CopyIn(s, m.Page(id), c.Memory[i])
		} else {
			err = m.ctx.CopyOut(s, c.Memory[i], m.Page(id))
		}
		if err != nil {
			return err
		}
	}
	return m.ctx.Record(c.Done, s)
}

// order makes stream s wait for the copies on the other stream that touch the same pages or host
// memory as c, and adds c to the copies that have begun.
func (m *Memory) order(c *Copy, s cudrv.Stream) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mine := make(map[kv.PageID]bool, len(c.Pages))
	for _, id := range c.Pages {
		mine[id] = true
	}
	for i := range m.open {
		o := &m.open[i]
		touches := slices.ContainsFunc(o.Pages, func(id kv.PageID) bool { return mine[id] })
		if o.ToDevice == c.ToDevice || !touches && !o.meets(c) {
			continue
		}
		if err := m.ctx.Wait(s, o.Done); err != nil {
			return err
		}
	}
	m.open = append(m.open, *c)
	return nil
}

// meets reports whether the spans of c's and o's host memory overlap.
func (c *Copy) meets(o *Copy) bool {
	lo, hi := c.span()
	from, to := o.span()
	return lo < to && from < hi
}

// span returns the smallest range [lo, hi) of addresses that contains all of c's host memory.
func (c *Copy) span() (lo, hi uintptr) {
	lo = ^uintptr(0)
	for _, m := range c.Memory {
		at := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
		lo, hi = min(lo, at), max(hi, at+uintptr(len(m)))
	}
	return lo, hi
}

// Await makes work queued on s from now on wait for copy id. If the copy has ended, Await has no
// effect.
func (m *Memory) Await(s cudrv.Stream, id uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.open, func(c Copy) bool { return c.ID == id }); i >= 0 {
		return m.ctx.Wait(s, m.open[i].Done)
	}
	return nil
}

// End forgets copy id. Call it after the copy's event reported completion, or if Begin failed. The
// caller may reuse the event afterwards.
func (m *Memory) End(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = slices.DeleteFunc(m.open, func(c Copy) bool { return c.ID == id })
}
