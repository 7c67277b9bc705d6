package carrier

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// carry is a move under way.
type carry struct {
	tiering.Move
	stage    stage
	buffer   *buffer
	took     time.Duration // of the stores
	canceled bool
}

// stage is what a carry waits for.
type stage uint8

const (
	copying  stage = iota // the device
	fetching              // a Get
	queued                // the Put of its parent
	storing               // its own Put
	dropping              // a Drop
)

// target is what a write brings into a tier. The policy has one at a time.
type target struct {
	to  kv.Tier
	key mempool.Key
}

// track begins to know a move.
func (x *Carrier) track(c *carry) {
	x.moves[c.ID] = c
	if c.Kind == tiering.Write {
		x.writes[target{c.To, c.Extent.Key}] = c
	}
}

// untrack ends that.
func (x *Carrier) untrack(c *carry) {
	delete(x.moves, c.ID)
	if at := (target{c.To, c.Extent.Key}); x.writes[at] == c {
		delete(x.writes, at)
	}
}

// undo marks the operation that removes what a Put brought after its move was given up.
const undo = 1 << 63

// start takes the first step of a move.
func (x *Carrier) start(c *carry) {
	if err := x.check(c); err != nil {
		x.finish(c, err)
		return
	}
	if c.Kind == tiering.Drop {
		c.stage = dropping
		x.submit(c, c.From, mempool.Drop)
		return
	}
	if len(x.buffers) == 0 {
		x.finish(c, fmt.Errorf("%w: all %d buffers are in use", mempool.ErrBusy, x.kept))
		return
	}
	last := len(x.buffers) - 1
	c.buffer, x.buffers = x.buffers[last], x.buffers[:last]
	x.kept++
	if c.From == kv.TierDevice {
		x.copy(c)
		return
	}
	c.stage = fetching
	x.submit(c, c.From, mempool.Get)
}

// check reports what makes a move none that can be carried out.
func (x *Carrier) check(c *carry) error {
	known := func(t kv.Tier) bool { return t < kv.Tiers && x.stores[t] != nil }
	pages := x.cfg.Layout.Pages(&c.Extent)
	switch {
	case x.closed:
		return mempool.ErrClosed
	case c.Kind == tiering.Drop && known(c.From):
		return nil
	case c.Kind == tiering.Write && c.From == kv.TierDevice && known(c.To) && len(c.Pages) == pages:
		return nil
	case c.Kind == tiering.Write && known(c.From) && known(c.To) && c.From != c.To:
		return nil
	case c.Kind == tiering.Read && known(c.From) && c.To == kv.TierDevice && len(c.Pages) == pages:
		return nil
	}
	return fmt.Errorf("%w: %v from %v to %v of %d pages, the extent has %d", mempool.ErrInvalid, c.Kind, c.From, c.To, len(c.Pages), pages)
}

// memory is the part of the buffer that the extent fills.
func (x *Carrier) memory(c *carry) [][]byte {
	return c.buffer.pages[:x.cfg.Layout.Pages(&c.Extent)]
}

// copy begins the copy between the device and the buffer. A device that refuses it for
// now, or is lost, says nothing about the store: the extent stays there.
func (x *Carrier) copy(c *carry) {
	c.stage = copying
	m := engine.Move{ID: engine.MoveID(c.ID), From: c.From, To: c.To, Pages: c.Pages}
	memory := x.memory(c)
	if slices.Contains(c.Pages, kv.NoPage) { // of a read; the device has these
		m.Pages = nil
		var wanted [][]byte
		for i, p := range c.Pages {
			if p != kv.NoPage {
				m.Pages, wanted = append(m.Pages, p), append(wanted, memory[i])
			}
		}
		memory = wanted
	}
	if err := x.mover.Move(&m, memory); err != nil {
		x.finish(c, fmt.Errorf("%w: copying pages: %w", mempool.ErrCanceled, err))
	}
}

// copied goes on after the device's part of a move.
func (x *Carrier) copied(c *carry, err error) {
	if err != nil {
		err = fmt.Errorf("%w: copying pages: %w", mempool.ErrCanceled, err)
	}
	if err != nil || c.To == kv.TierDevice {
		x.finish(c, err)
		return
	}
	x.ended = append(x.ended, Ended{ID: c.ID, Copied: true})
	x.put(c)
}

// put hands the buffer to the store, after its parent's if that is on its way.
func (x *Carrier) put(c *carry) {
	switch {
	case c.canceled:
		x.finish(c, mempool.ErrCanceled)
	case x.parentComes(c):
		c.stage = queued
		x.held = append(x.held, c)
	default:
		c.stage = storing
		x.submit(c, c.To, mempool.Put)
	}
}

// parentComes reports whether a write of the extent's parent to the same tier is on its
// way, and its Put not submitted.
func (x *Carrier) parentComes(c *carry) bool {
	parent := x.writes[target{c.To, c.Extent.Parent}]
	return parent != nil && parent.stage < storing && !parent.canceled
}

// release submits the writes that wait for nothing any more.
func (x *Carrier) release() {
	for again := true; again; {
		again = false
		for i, c := range x.held {
			if c.canceled || !x.parentComes(c) {
				x.held = slices.Delete(x.held, i, i+1)
				x.put(c)
				again = true
				break
			}
		}
	}
}

// submit begins the operation of a carry at a store.
func (x *Carrier) submit(c *carry, t kv.Tier, kind mempool.OpKind) {
	op := mempool.Op{ID: mempool.OpID(c.ID), Kind: kind, Extent: c.Extent, Deadline: x.due(c)}
	if c.buffer != nil {
		op.Pages = x.memory(c)
	}
	if err := x.stores[t].Submit(op); err != nil {
		x.finish(c, err)
	}
}

// due is the deadline of a move by the wall clock; zero: none.
func (x *Carrier) due(c *carry) time.Time {
	if c.Deadline == 0 {
		return time.Time{}
	}
	return x.cfg.Start.Add(c.Deadline)
}

// stored goes on after the ending of a store's operation.
func (x *Carrier) stored(t kv.Tier, d *mempool.Done) {
	if d.ID&probing != 0 {
		x.counted(d)
		return
	}
	if d.ID&undo != 0 {
		x.forget(d.ID, t)
		return
	}
	c := x.moves[tiering.MoveID(d.ID)]
	if c == nil {
		x.outlived(t, d)
		return
	}
	c.took += d.Took
	switch {
	case d.Err != nil:
		x.finishGone(c, t, d)
	case c.stage != fetching:
		x.finish(c, nil)
	case c.canceled:
		x.finish(c, mempool.ErrCanceled)
	case c.Kind == tiering.Read:
		x.copy(c)
	default:
		x.put(c)
	}
}

// finishGone ends a move whose store failed.
func (x *Carrier) finishGone(c *carry, t kv.Tier, d *mempool.Done) {
	x.finish(c, d.Err)
	last := &x.ended[len(x.ended)-1]
	last.Gone, last.GoneFrom = d.Gone, t
}

// finish tells the ending of a move and gives its buffer back.
func (x *Carrier) finish(c *carry, err error) {
	x.untrack(c)
	x.ended = append(x.ended, Ended{ID: c.ID, Err: err, Took: c.took})
	x.giveBack(c)
}

func (x *Carrier) giveBack(c *carry) {
	if c.buffer != nil {
		x.buffers = append(x.buffers, c.buffer)
		c.buffer = nil
		x.kept--
	}
}

// cancel ends a move soon. A copy of the device is let end: its pages are in use until then.
func (x *Carrier) cancel(id tiering.MoveID) {
	c := x.moves[id]
	if c == nil || c.canceled {
		return
	}
	c.canceled = true
	switch c.stage {
	case fetching, dropping:
		x.stores[c.From].Cancel(mempool.OpID(id))
	case storing:
		x.stores[c.To].Cancel(mempool.OpID(id))
	case queued:
		x.watch.wake() // release ends it
	}
}

// overdue gives up the moves whose stores have not ended them in time. The store keeps the
// buffer until it does.
func (x *Carrier) overdue(now time.Time) {
	for _, c := range x.moves { // what they are told does not depend on the order
		due := x.due(c)
		if c.stage == copying || due.IsZero() || now.Before(due.Add(x.cfg.Grace)) {
			continue
		}
		if c.stage == queued {
			x.held = slices.DeleteFunc(x.held, func(o *carry) bool { return o == c })
			x.finish(c, mempool.ErrDeadline)
			continue
		}
		x.untrack(c)
		x.lost = append(x.lost, c)
		x.ended = append(x.ended, Ended{ID: c.ID, Took: c.took, Err: fmt.Errorf("%w: the store of tier %v does not answer", mempool.ErrDeadline, c.at())})
	}
}

// at is the tier whose store works on c.
func (c *carry) at() kv.Tier {
	if c.stage == storing {
		return c.To
	}
	return c.From
}

// outlived takes the ending of an operation whose move was given up. What it stored after
// all is removed: nobody knows of it.
func (x *Carrier) outlived(t kv.Tier, d *mempool.Done) {
	i := slices.IndexFunc(x.lost, func(c *carry) bool { return c.ID == tiering.MoveID(d.ID) })
	if i < 0 {
		return
	}
	c := x.lost[i]
	x.giveBack(c)
	if d.Kind == mempool.Put && d.Err == nil && !x.closed {
		err := x.stores[t].Submit(mempool.Op{ID: d.ID | undo, Kind: mempool.Drop, Extent: c.Extent})
		if err == nil {
			return
		}
	}
	x.lost = slices.Delete(x.lost, i, i+1)
}

// forget ends the removal that outlived began.
func (x *Carrier) forget(id mempool.OpID, t kv.Tier) {
	x.lost = slices.DeleteFunc(x.lost, func(c *carry) bool { return c.ID == tiering.MoveID(id&^undo) && c.To == t })
}
