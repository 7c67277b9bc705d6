package cudamem

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/kv"
)

// Pool is pages in one allocation of a device's memory, one after another. The memory goes
// with the context.
type Pool struct {
	ctx              cudrv.Context
	base             cudrv.Ptr
	pageBytes, pages int
	toHost, toDevice cudrv.Stream
	queued           cudrv.Event // the kernels before a copy

	mu   sync.Mutex
	open []Copy // begun and not ended, in order
}

// Copy is pages that are copied to pinned memory or from it.
type Copy struct {
	ID       uint64 // not that of another one that has not ended
	ToDevice bool
	Pages    []kv.PageID
	Memory   [][]byte    // of HostAlloc, a page each
	Done     cudrv.Event // is recorded after the copy
}

// New allocates the pages, zeroed once what s has been given is done. It fails with the
// driver's error, cudrv.ErrMemory for example.
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

// Base is where the first page begins.
func (p *Pool) Base() cudrv.Ptr { return p.base }

// Page is where a page begins.
func (p *Pool) Page(id kv.PageID) cudrv.Ptr { return p.base + cudrv.Ptr(p.pageBytes*int(id)) }

// Begin queues a copy and returns. It sees what the stream of kernels has been given, and
// the copies begun before. c's slices are the pool's until End.
func (p *Pool) Begin(c Copy, kernels cudrv.Stream) error {
	s := p.stream(c.ToDevice)
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
		if id < 0 || int(id) >= p.pages || len(c.Memory[i]) != p.pageBytes {
			panic(fmt.Sprintf("cudamem: page %d of %d to or from %d bytes, want %d", id, p.pages, len(c.Memory[i]), p.pageBytes))
		}
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

func (p *Pool) stream(toDevice bool) cudrv.Stream {
	if toDevice {
		return p.toDevice
	}
	return p.toHost
}

// order has s wait for the copies of the other stream that c must see, and notes c.
func (p *Pool) order(c *Copy, s cudrv.Stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := make(map[kv.PageID]bool, len(c.Pages))
	for _, id := range c.Pages {
		mine[id] = true
	}
	for i := range p.open {
		o := &p.open[i]
		if o.ToDevice == c.ToDevice || !o.touches(mine) && !o.meets(c) {
			continue
		}
		if err := p.ctx.Wait(s, o.Done); err != nil {
			return err
		}
	}
	p.open = append(p.open, *c)
	return nil
}

// touches reports whether a page of c is one of these.
func (c *Copy) touches(pages map[kv.PageID]bool) bool {
	for _, id := range c.Pages {
		if pages[id] {
			return true
		}
	}
	return false
}

// meets reports whether the memory of both may overlap: by where all of it lies.
func (c *Copy) meets(o *Copy) bool {
	lo, hi := c.span()
	from, to := o.span()
	return lo < to && from < hi
}

// span is [lo, hi), where c's memory lies.
func (c *Copy) span() (lo, hi uintptr) {
	lo = ^uintptr(0)
	for _, m := range c.Memory {
		at := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
		lo, hi = min(lo, at), max(hi, at+uintptr(len(m)))
	}
	return lo, hi
}

// Await has what s is given from now on wait for copy id. One that has ended is not waited
// for.
func (p *Pool) Await(s cudrv.Stream, id uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.open {
		if p.open[i].ID == id {
			return p.ctx.Wait(s, p.open[i].Done)
		}
	}
	return nil
}

// End marks copy id as done, as its event reported, or as void. Its event may be recorded
// again afterwards.
func (p *Pool) End(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.open {
		if p.open[i].ID == id {
			p.open = append(p.open[:i], p.open[i+1:]...)
			return
		}
	}
}
