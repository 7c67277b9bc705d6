package storetest

import (
	"slices"
	"sync"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
)

// flaw holds hooks that make a sound store broken. Nil hooks change nothing. All but options and
// list are called with the broken store's lock held.
type flaw struct {
	options func(p *past, o *Options)                                     // changes the options of the sound store
	info    func(i *mempool.StoreInfo)                                    // changes the result of Info
	submit  func(b *broken, op *mempool.Op)                               // changes an operation before Submit
	refused func(b *broken, op mempool.Op, err error) error               // replaces an error of Submit
	ended   func(b *broken, op mempool.Op, d mempool.Done) []mempool.Done // replaces a result of Poll
	cancel  func(b *broken, id mempool.OpID) bool                         // false: Cancel does nothing
	metrics func(b *broken, m *mempool.StoreMetrics)                      // changes the result of Metrics
	list    func(b *broken, dst []mempool.Extent) []mempool.Extent        // replaces Contents
	close   func(b *broken) error                                         // runs after Close
}

// broken is a store that breaks one rule: it changes the inputs or results of a sound store.
type broken struct {
	mempool.Store
	flaw    flaw
	options Options
	past    *past

	mu   sync.Mutex
	open map[mempool.OpID]mempool.Op // open operations, as the caller submitted them
}

// past is the memory that the broken stores of one check share across openings.
type past struct {
	put      map[mempool.Key]copied // extents in the store
	dropped  map[mempool.Key]copied
	late     []mempool.Op // operations that a flaw recorded, for example those past their deadline
	openings int
	failures int      // puts that failed
	count    int      // a counter for the flaw's use
	undo     []func() // releases the resources that a flaw leaked
}

// copied is a copy of an extent and its pages.
type copied struct {
	extent mempool.Extent
	pages  [][]byte
}

func newPast() *past { return &past{put: map[mempool.Key]copied{}, dropped: map[mempool.Key]copied{}} }

// wrap returns a Harness whose stores have the flaw.
func (p *past) wrap(h Harness, f flaw) Harness {
	sound := h.Open
	h.Open = func(o Options) (mempool.Store, error) {
		if p.openings++; f.options != nil {
			f.options(p, &o)
		}
		s, err := sound(o)
		if err != nil {
			return nil, err
		}
		b := &broken{Store: s, flaw: f, options: o, past: p, open: map[mempool.OpID]mempool.Op{}}
		return b, nil
	}
	return h
}

func (b *broken) Info() mempool.StoreInfo {
	i := b.Store.Info()
	if b.flaw.info != nil {
		b.flaw.info(&i)
	}
	return i
}

func (b *broken) Submit(op mempool.Op) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	submitted := op
	if b.flaw.submit != nil {
		b.flaw.submit(b, &op)
	}
	err := b.Store.Submit(op)
	if err != nil && b.flaw.refused != nil {
		err = b.flaw.refused(b, op, err)
	}
	if err == nil {
		b.open[op.ID] = submitted
	}
	return err
}

func (b *broken) Cancel(id mempool.OpID, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flaw.cancel == nil || b.flaw.cancel(b, id) {
		b.Store.Cancel(id, cause)
	}
}

func (b *broken) Poll(dst []mempool.Done) []mempool.Done {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.Store.Poll(nil) {
		op := b.open[d.ID]
		delete(b.open, d.ID)
		said := []mempool.Done{d}
		if b.flaw.ended != nil {
			said = b.flaw.ended(b, op, d)
		}
		b.past.remember(op, d)
		dst = append(dst, said...)
	}
	return dst
}

// remember records the result of an operation of the sound store.
func (p *past) remember(op mempool.Op, d mempool.Done) {
	key := op.Extent.Key
	switch {
	case op.Kind == mempool.Put && d.Err == nil && d.Bytes > 0:
		c := copied{extent: op.Extent.Clone()}
		for _, page := range op.Pages {
			c.pages = append(c.pages, slices.Clone(page))
		}
		p.put[key] = c
	case op.Kind == mempool.Drop && d.Err == nil:
		p.dropped[key] = p.put[key]
		delete(p.put, key)
	case op.Kind == mempool.Put && d.Err != nil:
		p.failures++
	}
}

// serve copies the pages of c to a Get's pages and makes its result a success.
func (c *copied) serve(op mempool.Op, d *mempool.Done) {
	for i := range op.Pages {
		d.Bytes += copy(op.Pages[i], c.pages[i])
	}
	d.Sum, d.Err, d.Gone = checksum.Sum(slices.Concat(c.pages...)), nil, nil
}

func (b *broken) Contents(dst []mempool.Extent) []mempool.Extent {
	if b.flaw.list == nil {
		return b.Store.Contents(dst)
	}
	return b.flaw.list(b, dst)
}

func (b *broken) Metrics() mempool.StoreMetrics {
	m := b.Store.Metrics()
	if b.flaw.metrics != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.flaw.metrics(b, &m)
	}
	return m
}

func (b *broken) Close() error {
	err := b.Store.Close()
	if b.flaw.close != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.flaw.close(b)
	}
	return err
}
