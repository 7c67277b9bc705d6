package storetest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/checksum"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
)

// controls returns all controls. Every check has at least one.
func controls() []control {
	return slices.Concat(basicControls(), manyControls(), orderControls(), timeControls(), closeControls(), faultControls(), durableControls(), sharedControls())
}

// ending returns a flaw that changes the results of operations of one kind.
func ending(kind mempool.OpKind, change func(b *broken, op mempool.Op, d *mempool.Done)) flaw {
	return flaw{ended: func(b *broken, op mempool.Op, d mempool.Done) []mempool.Done {
		if d.Kind == kind {
			change(b, op, &d)
		}
		return []mempool.Done{d}
	}}
}

// forgive returns a flaw that reports success for operations of one kind that failed with cause.
func forgive(kind mempool.OpKind, cause error) flaw {
	return ending(kind, func(_ *broken, _ mempool.Op, d *mempool.Done) {
		if errors.Is(d.Err, cause) {
			d.Err = nil
		}
	})
}

// instead returns a flaw that reports each result for which match is true as often as times says:
// 0 loses the result, 2 repeats it.
func instead(times int, match func(d *mempool.Done) bool) flaw {
	return flaw{ended: func(_ *broken, _ mempool.Op, d mempool.Done) []mempool.Done {
		if match(&d) {
			return slices.Repeat([]mempool.Done{d}, times)
		}
		return []mempool.Done{d}
	}}
}

func endsWith(cause error) func(d *mempool.Done) bool {
	return func(d *mempool.Done) bool { return errors.Is(d.Err, cause) }
}

// accept returns a flaw whose Submit hides refusals with cause.
func accept(cause error) flaw {
	return flaw{refused: func(_ *broken, _ mempool.Op, err error) error {
		if errors.Is(err, cause) {
			return nil
		}
		return err
	}}
}

// miscount returns a flaw that adds the result of by to Metrics.Extents.
func miscount(by func(b *broken) int) flaw {
	return flaw{metrics: func(b *broken, m *mempool.StoreMetrics) { m.Extents += by(b) }}
}

// revive returns a flaw that turns failed Gets into successful ones, with the pages that the map from
// has for the extent, if when returns true for the Get's error.
func revive(from func(p *past) map[mempool.Key]copied, when func(b *broken, x *mempool.Extent, err error) bool) flaw {
	return ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
		if c, ok := from(b.past)[op.Extent.Key]; ok && d.Err != nil && when(b, &op.Extent, d.Err) {
			c.serve(op, d)
		}
	})
}

func wasPut(p *past) map[mempool.Key]copied     { return p.put }
func wasDropped(p *past) map[mempool.Key]copied { return p.dropped }

// writing returns the open Put of an extent.
func (b *broken) writing(k mempool.Key) (mempool.Op, bool) {
	for _, op := range b.open {
		if op.Kind == mempool.Put && op.Extent.Key == k {
			return op, true
		}
	}
	return mempool.Op{}, false
}

const wantMiss = "want mempool: no such extent"

func basicControls() []control {
	trust := func(believe func(mine, asked *mempool.Extent)) flaw {
		return flaw{submit: func(b *broken, op *mempool.Op) {
			if c, ok := b.past.put[op.Extent.Key]; ok && op.Kind == mempool.Get {
				believe(&c.extent, &op.Extent)
			}
		}}
	}
	return []control{
		{check: "RoundTrip", name: "never ends a flush", says: hangs, flaw: instead(0, func(d *mempool.Done) bool { return d.Kind == mempool.Flush })},
		{check: "RoundTrip", name: "ends gets twice", says: "ended twice", flaw: instead(2, func(d *mempool.Done) bool { return d.Kind == mempool.Get })},
		{check: "RoundTrip", name: "mixes up pages", says: "wrong bytes", flaw: ending(mempool.Get, func(_ *broken, op mempool.Op, _ *mempool.Done) {
			copy(op.Pages[0], op.Pages[len(op.Pages)-1])
		})},
		{check: "RoundTrip", name: "reports another checksum", says: "reports sum", flaw: ending(mempool.Get, func(_ *broken, _ mempool.Op, d *mempool.Done) { d.Sum++ })},
		{check: "RoundTrip", name: "serves dropped extents", says: wantMiss, flaw: revive(wasDropped, func(*broken, *mempool.Extent, error) bool { return true })},
		{check: "RoundTrip", name: "counts dropped extents", says: "should be here", flaw: miscount(func(b *broken) int { return len(b.past.dropped) })},
		{check: "PartOfExtent", name: "returns the last pages instead of the first", says: "wrong bytes", flaw: ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
			c := b.past.put[op.Extent.Key]
			for i := range op.Pages {
				copy(op.Pages[i], c.pages[len(c.pages)-len(op.Pages)+i])
			}
		})},
		{check: "PartOfExtent", name: "reports the checksum of the pages that it returns only", says: "1 pages", flaw: ending(mempool.Get, func(_ *broken, op mempool.Op, d *mempool.Done) {
			d.Sum = checksum.Sum(slices.Concat(op.Pages...))
		})},
		{check: "Probe", name: "counts extents after a gap", says: "are found", flaw: ending(mempool.Probe, func(_ *broken, op mempool.Op, d *mempool.Done) {
			if d.Err == nil {
				d.Found = 1 + len(op.Then)
			}
		})},
		{check: "Probe", name: "counts the first extent only", says: "are found", flaw: ending(mempool.Probe, func(_ *broken, _ mempool.Op, d *mempool.Done) { d.Found = min(d.Found, 1) })},
		{check: "Identity", name: "serves other tokens than asked for", says: wantMiss, flaw: trust(func(mine, asked *mempool.Extent) { asked.Tokens = mine.Tokens[:len(asked.Tokens)] })},
		{check: "Identity", name: "serves other namespaces", says: wantMiss, flaw: trust(func(mine, asked *mempool.Extent) { asked.Namespace = mine.Namespace })},
		{check: "Identity", name: "serves other media", says: wantMiss, flaw: trust(func(mine, asked *mempool.Extent) { asked.Media = mine.Media })},
		{check: "Identity", name: "serves other positions", says: wantMiss, flaw: trust(func(mine, asked *mempool.Extent) { asked.Start, asked.Parent = mine.Start, mine.Parent })},
		{check: "Refused", name: "accepts invalid operations", says: "<nil>", flaw: accept(mempool.ErrInvalid)},
		{check: "Refused", name: "finds extents that were never put", says: "never put", flaw: forgive(mempool.Probe, mempool.ErrMiss)},
		{check: "Capacity", name: "accepts more extents than fit", says: "extents took", flaw: forgive(mempool.Put, mempool.ErrFull)},
		{check: "Capacity", name: "is full too soon", says: "the store holds", flaw: ending(mempool.Put, func(b *broken, _ mempool.Op, d *mempool.Done) {
			if len(b.past.put) == 12 {
				d.Err = mempool.ErrFull
			}
		})},
		{check: "Capacity", name: "has no room after a drop", says: "put of extent 0", flaw: ending(mempool.Put, func(b *broken, _ mempool.Op, d *mempool.Done) {
			if len(b.past.dropped) > 0 {
				d.Err = mempool.ErrFull
			}
		})},
		{check: "Sum", name: "ignores the checksum of a put", says: "want mempool: record is damaged", flaw: flaw{submit: func(_ *broken, op *mempool.Op) { op.Sum = 0 }}},
	}
}

func manyControls() []control {
	return []control{
		{check: "Random", name: "misses stored extents at times", says: "get of a stored extent (true)", flaw: ending(mempool.Get, func(b *broken, _ mempool.Op, d *mempool.Done) {
			if b.past.count++; d.Err == nil && b.past.count > 20 {
				d.Err = mempool.ErrMiss
			}
		})},
		{check: "Concurrent", name: "mixes up concurrent operations", says: "wrong bytes", flaw: ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
			if len(b.open) > 0 {
				op.Pages[0][0] ^= 1
			}
		})},
		{check: "Concurrent", name: "loses one operation of many", says: hangs, flaw: flaw{ended: func(b *broken, _ mempool.Op, d mempool.Done) []mempool.Done {
			if b.past.count++; b.past.count == 10 {
				return nil
			}
			return []mempool.Done{d}
		}}},
		{check: "Concurrent", name: "ends one operation of many twice", says: "ended twice", flaw: flaw{ended: func(b *broken, _ mempool.Op, d mempool.Done) []mempool.Done {
			if b.past.count++; b.past.count == 10 {
				return []mempool.Done{d, d}
			}
			return []mempool.Done{d}
		}}},
	}
}

func orderControls() []control {
	impatient := flaw{
		submit: func(b *broken, op *mempool.Op) {
			if _, ok := b.writing(op.Extent.Parent); ok && op.Kind == mempool.Put {
				b.past.late = append(b.past.late, *op)
			}
		},
		ended: func(b *broken, _ mempool.Op, d mempool.Done) []mempool.Done {
			if slices.ContainsFunc(b.past.late, func(op mempool.Op) bool { return op.ID == d.ID }) {
				d.Err = mempool.ErrOrphan
			}
			return []mempool.Done{d}
		},
	}
	return []control{
		{check: "Order", name: "accepts a child without its parent", says: "want mempool: parent is not in the store", flaw: forgive(mempool.Put, mempool.ErrOrphan)},
		{check: "Order", name: "does not wait for a parent's put", says: "mempool: parent is not in the store", flaw: impatient},
		{check: "Order", name: "drops a parent before its children", says: "want mempool: extent has children", flaw: forgive(mempool.Drop, mempool.ErrChildren)},
		{check: "Order", name: "accepts an extent below a tail", says: "an extent with a wrong key", flaw: accept(mempool.ErrInvalid)},
		{check: "Whole", name: "shows an extent before it is written", says: "can be found", flaw: ending(mempool.Probe, func(b *broken, op mempool.Op, d *mempool.Done) {
			if _, ok := b.writing(op.Extent.Key); ok {
				d.Err = nil
			}
		})},
		{check: "Whole", name: "serves an extent before it is written", says: "wrong bytes", flaw: ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
			if from, ok := b.writing(op.Extent.Key); ok {
				copy(op.Pages[0], from.Pages[0])
				d.Err = nil
			}
		})},
		{check: "Whole", name: "counts open writes", says: "is counted", flaw: miscount(func(b *broken) int { return len(b.open) })},
		{check: "Whole", name: "lists open writes", says: "is listed", flaw: flaw{list: func(b *broken, dst []mempool.Extent) []mempool.Extent {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, op := range b.open {
				dst = append(dst, op.Extent)
			}
			return dst
		}}},
	}
}

func timeControls() []control {
	touches := flaw{
		ended: func(b *broken, op mempool.Op, d mempool.Done) []mempool.Done {
			if d.Kind == mempool.Get && errors.Is(d.Err, mempool.ErrDeadline) {
				b.past.late = append(b.past.late, op)
			}
			return []mempool.Done{d}
		},
		submit: func(b *broken, _ *mempool.Op) {
			for _, op := range b.past.late {
				op.Pages[0][7] = 1
			}
		},
	}
	shows := ending(mempool.Put, func(b *broken, op mempool.Op, d *mempool.Done) {
		if errors.Is(d.Err, mempool.ErrDeadline) {
			b.past.put[op.Extent.Key] = copied{extent: op.Extent.Clone(), pages: op.Pages}
		}
	})
	late := shows.ended
	shows.ended = func(b *broken, op mempool.Op, d mempool.Done) []mempool.Done {
		if _, ok := b.past.put[op.Extent.Key]; ok && d.Kind == mempool.Probe {
			d.Err = nil
		}
		return late(b, op, d)
	}
	return []control{
		{check: "Deadline", name: "does not end late operations", says: hangs, flaw: flaw{cancel: func(*broken, mempool.OpID) bool { return false }}},
		{check: "Deadline", name: "writes to pages that it has returned", says: "had returned to the caller", flaw: touches},
		{check: "Deadline", name: "continues a put past its deadline", says: "after its deadline is in the store", flaw: shows},
		{check: "NoAnswer", name: "waits for calls that never return", says: hangs, flaw: flaw{cancel: func(*broken, mempool.OpID) bool { return false }}},
		{check: "NoAnswer", name: "serves what it was told to give up", says: "wrong bytes", flaw: ending(mempool.Get, func(_ *broken, op mempool.Op, d *mempool.Done) {
			if b := op.Pages[0]; d.Err == nil {
				b[0] ^= 1
			}
		})},
		{check: "GivenUp", name: "loses the extent of a read past its deadline", says: "no operation has reported it", flaw: ending(mempool.Probe, func(_ *broken, _ mempool.Op, d *mempool.Done) { d.Err = mempool.ErrMiss })},
		{check: "Cancel", name: "cancels nothing", says: hangs, flaw: flaw{cancel: func(*broken, mempool.OpID) bool { return false }}},
		{check: "Cancel", name: "ends a canceled operation twice", says: "ended twice", flaw: instead(2, endsWith(mempool.ErrCanceled))},
		{check: "Cancel", name: "never ends canceled operations", says: hangs, flaw: instead(0, endsWith(mempool.ErrCanceled))},
		{check: "Cancel", name: "counts canceled puts", says: "should be here", flaw: miscount(func(b *broken) int { return b.past.failures })},
		{check: "Busy", name: "accepts more operations than Info says", says: "<nil>", flaw: flaw{info: func(i *mempool.StoreInfo) { i.MaxOps-- }}},
		{check: "Busy", name: "accepts fewer operations than Info says", says: "too many operations", flaw: flaw{info: func(i *mempool.StoreInfo) { i.MaxOps++ }}},
	}
}

func closeControls() []control {
	leave := func(leak func(b *broken) (undo func())) flaw {
		return flaw{close: func(b *broken) error {
			b.past.undo = append(b.past.undo, leak(b))
			return nil
		}}
	}
	return []control{
		{check: "Close", name: "never ends waiting operations", says: hangs, flaw: instead(0, endsWith(mempool.ErrClosed))},
		{check: "Close", name: "accepts operations after it", says: "<nil>", flaw: accept(mempool.ErrClosed)},
		{check: "Close", name: "leaves a goroutine", says: "unexpected goroutines", flaw: leave(func(*broken) func() {
			stop := make(chan struct{})
			go func() { <-stop }()
			return func() { close(stop) }
		})},
		{check: "Close", name: "leaves a descriptor", says: "are after Close", flaw: leave(func(*broken) func() {
			f, err := os.Open(os.DevNull)
			if err != nil {
				return func() {}
			}
			return func() { f.Close() }
		})},
		{check: "Close", name: "leaves a temporary file", says: "is left", flaw: leave(func(b *broken) func() { b.litter(); return func() {} })},
	}
}

// litter leaves a temporary file, as if a write had been interrupted.
func (b *broken) litter() {
	_ = os.WriteFile(filepath.Join(b.options.Dir, blockio.TempPrefix+"left"), nil, 0o644)
}

// damaged reports whether err means that the store had the extent but could not read it.
func damaged(err error) bool {
	return !errors.Is(err, mempool.ErrMiss) && !errors.Is(err, mempool.ErrDeadline) && !errors.Is(err, mempool.ErrCanceled)
}

// unchecked returns a flaw that serves extents with a wrong bit instead of returning ErrCorrupt.
func unchecked() flaw {
	return ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
		if c, ok := b.past.put[op.Extent.Key]; ok && errors.Is(d.Err, mempool.ErrCorrupt) {
			c.serve(op, d)
			op.Pages[0][3] ^= 4
		}
	})
}

func faultControls() []control {
	return []control{
		{check: "Faults", name: "swallows ENOSPC", says: "get of extent", flaw: forgive(mempool.Put, syscall.ENOSPC)},
		{check: "Faults", name: "swallows EIO", says: "get of extent", flaw: forgive(mempool.Put, syscall.EIO)},
		{check: "Faults", name: "never ends failed operations", says: hangs, flaw: instead(0, endsWith(syscall.EIO))},
		{check: "Faults", name: "has no checksums", says: "wrong bytes", flaw: unchecked()},
		{check: "Faults", name: "counts puts that failed", says: "should be here", flaw: miscount(func(b *broken) int { return b.past.failures })},
		{check: "Faults", name: "leaves a temporary file where a put fails", says: "is left", flaw: ending(mempool.Put, func(b *broken, _ mempool.Op, d *mempool.Done) {
			if d.Err != nil {
				b.litter()
			}
		})},
		{check: "ReadOnce", name: "reads a failed extent again", says: "<nil>", flaw: revive(wasPut, func(_ *broken, _ *mempool.Extent, err error) bool {
			return damaged(err) || errors.Is(err, syscall.ENOENT)
		})},
		{check: "ReadOnce", name: "keeps an unreadable extent", says: wantMiss, flaw: ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
			failed := slices.ContainsFunc(b.past.late, func(o mempool.Op) bool { return o.Extent.Key == op.Extent.Key })
			if c, ok := b.past.put[op.Extent.Key]; ok && failed && errors.Is(d.Err, mempool.ErrMiss) {
				c.serve(op, d)
			} else if d.Err != nil {
				b.past.late = append(b.past.late, op)
			}
		})},
		{check: "ReadOnce", name: "does not report lost extents", says: "lost extents", flaw: ending(mempool.Get, func(_ *broken, _ mempool.Op, d *mempool.Done) { d.Gone = nil })},
		{check: "ReadOnce", name: "reports the extent as lost, but not its children", says: "lost extents", private: true, flaw: ending(mempool.Get, func(_ *broken, _ mempool.Op, d *mempool.Done) {
			d.Gone = d.Gone[max(0, len(d.Gone)-1):]
		})},
	}
}

func durableControls() []control {
	again := func(p *past) bool { return p.openings > 1 }
	return []control{
		{check: "Reopen", name: "forgets its extents", says: "get of extent", flaw: ending(mempool.Get, func(b *broken, _ mempool.Op, d *mempool.Done) {
			if again(b.past) {
				d.Err = mempool.ErrMiss
			}
		})},
		{check: "Reopen", name: "brings back dropped extents", says: wantMiss, flaw: revive(wasDropped, func(b *broken, _ *mempool.Extent, _ error) bool { return again(b.past) })},
		{check: "Reopen", name: "lists children first", says: "before its parent", private: true, flaw: flaw{list: func(b *broken, dst []mempool.Extent) []mempool.Extent {
			dst = b.Store.Contents(dst)
			slices.Reverse(dst)
			return dst
		}}},
		{check: "ReopenFewer", name: "keeps more extents than fit", says: "are left in a store", flaw: flaw{options: func(p *past, o *Options) {
			if again(p) {
				o.Extents *= 2
			}
		}}},
		{check: "ReopenFewer", name: "keeps children without parents", says: "without its parent", flaw: revive(wasPut, func(b *broken, x *mempool.Extent, _ error) bool { return again(b.past) && x.Start > 0 })},
		{check: "OtherIdentity", name: "reads records of another model", says: wantMiss, flaw: flaw{options: func(_ *past, o *Options) { o.Identity.ModelID = Identity().ModelID }}},
		{check: "OtherIdentity", name: "does not list other directories", says: "others are", flaw: flaw{info: func(i *mempool.StoreInfo) { i.Others = nil }}},
		{check: "OtherIdentity", name: "removes records of others", says: "others are", flaw: flaw{options: func(_ *past, o *Options) {
			entries, _ := os.ReadDir(o.Dir)
			for _, e := range entries {
				if e.Name() != o.Identity.Fingerprint().String() {
					os.RemoveAll(filepath.Join(o.Dir, e.Name()))
				}
			}
		}}},
		{check: "Damage", name: "serves damaged extents", says: "wrong bytes", flaw: ending(mempool.Get, func(b *broken, op mempool.Op, d *mempool.Done) {
			if c, ok := b.past.put[op.Extent.Key]; ok && d.Err != nil && again(b.past) {
				c.serve(op, d)
				op.Pages[0][3] ^= 4
			}
		})},
	}
}
