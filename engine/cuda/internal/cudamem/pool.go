package cudamem

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/kv"
)

// Pool holds pages in one allocation of device memory, one after another. Closing the context
// frees it.
type Pool struct {
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

// New allocates as many pages as pages says, of pageBytes bytes each, and queues on stream s that
// they are set to zero. It fails with the driver's error, for example cudrv.ErrMemory.
func New(ctx cudrv.Context, s cudrv.Stream, pageBytes, pages int) (*Pool, error) {
	p := &Pool{ctx: ctx, pageBytes: pageBytes, pages: pages}
	var err error
	for _, to := range []*cudrv.Stream{&p.toHost, &p.toDevice} {
		if *to, err = ctx.NewStream(); err != nil {
			return nil, err
		}
	}
	if p.queued, err = ctx.NewEvent(); err != nil {
		return nil, err
	}
	if p.base, err = ctx.Alloc(pageBytes * pages); err != nil {
		return nil, fmt.Errorf("cudamem: %d pages of %d bytes: %w", pages, pageBytes, err)
	}
	return p, ctx.Fill(s, p.base, 0, pageBytes*pages)
}

// Base returns the address of the first page.
func (p *Pool) Base() cudrv.Ptr { return p.base }

// Page returns the address of a page.
func (p *Pool) Page(id kv.PageID) cudrv.Ptr { return p.base + cudrv.Ptr(p.pageBytes*int(id)) }

// Begin queues copy c and returns. The copy starts after everything that was queued on the stream
// kernels, and after earlier copies that touch the same pages or host memory. The pool owns c's
// slices until End. Begin panics if a page is not in the pool or its memory is not a page long; then
// the copy has not begun.
func (p *Pool) Begin(c Copy, kernels cudrv.Stream) error {
	for i, id := range c.Pages {
		if id < 0 || int(id) >= p.pages || len(c.Memory[i]) != p.pageBytes {
			panic(fmt.Sprintf("cudamem: page %d of %d to or from %d bytes, want %d", id, p.pages, len(c.Memory[i]), p.pageBytes))
		}
	}
	s := p.toHost
	if c.ToDevice {
		s = p.toDevice
	}
	if err := p.ctx.Record(p.queued, kernels); err != nil {
		return err
	}
	if err := p.ctx.Wait(s, p.queued); err != nil {
		return err
	}
	if err := p.order(&c, s); err != nil {
		return err
	}
	for i, id := range c.Pages {
		var err error
		if c.ToDevice {
			err = p.ctx.CopyIn(s, p.Page(id), c.Memory[i])
		} else {
			err = p.ctx.CopyOut(s, c.Memory[i], p.Page(id))
		}
		if err != nil {
			return err
		}
	}
	return p.ctx.Record(c.Done, s)
}

// order makes stream s wait for the copies on the other stream that touch the same pages or host
// memory as c, and adds c to the copies that have begun.
func (p *Pool) order(c *Copy, s cudrv.Stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := make(map[kv.PageID]bool, len(c.Pages))
	for _, id := range c.Pages {
		mine[id] = true
	}
	for i := range p.open {
		o := &p.open[i]
		touches := slices.ContainsFunc(o.Pages, func(id kv.PageID) bool { return mine[id] })
		if o.ToDevice == c.ToDevice || !touches && !o.meets(c) {
			continue
		}
		if err := p.ctx.Wait(s, o.Done); err != nil {
			return err
		}
	}
	p.open = append(p.open, *c)
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
func (p *Pool) Await(s cudrv.Stream, id uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.open, func(c Copy) bool { return c.ID == id }); i >= 0 {
		return p.ctx.Wait(s, p.open[i].Done)
	}
	return nil
}

// End forgets copy id. Call it after the copy's event reported completion, or if Begin failed. The
// caller may reuse the event afterwards.
func (p *Pool) End(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = slices.DeleteFunc(p.open, func(c Copy) bool { return c.ID == id })
}
