package carrier

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
)

// carry is a move in progress, or a probe.
type carry struct {
	tiering.Move
	probed []mempool.Extent // what a probe asks for
	found  int              // how many of these the store has
	stage  stage
	begun  time.Time
	buffer *buffer
	took   time.Duration // time that the stores worked so far
	cause  error         // why it is to end early, see stop; or nil
	gone   []mempool.Key // extents that the store lost in its last operation
}

// stage is the step that a carry waits for.
type stage uint8

const (
	looking  stage = iota // a Probe
	copying               // the device's copy
	fetching              // a Get
	queued                // submission of its parent's Put, or the end of a given up one, see mustWait
	storing               // its own Put
	dropping              // a Drop
)

// target is the destination of a write. The book has one write per target at a time.
type target struct {
	to  kv.Tier
	key mempool.Key
}

// track registers a move.
func (x *Carrier) track(c *carry) {
	x.moves[c.ID] = c
	if c.Kind == tiering.Write {
		x.writes[target{c.To, c.Extent.Key}] = c
	}
}

// untrack unregisters a move.
func (x *Carrier) untrack(c *carry) {
	delete(x.moves, c.ID)
	if at := (target{c.To, c.Extent.Key}); x.writes[at] == c {
		delete(x.writes, at)
	}
}

// undo marks the ID of a Drop that removes the extent of a Put whose move was given up.
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

// check returns an error if a move can't be carried out.
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

// memory returns the pages of c's buffer that its extent fills.
func (x *Carrier) memory(c *carry) [][]byte {
	return c.buffer.pages[:x.cfg.Layout.Pages(&c.Extent)]
}

// copy begins the copy between the device and the buffer. If the device refuses the copy, the move
// ends with ErrCanceled, because the extent in the store is intact.
func (x *Carrier) copy(c *carry) {
	c.stage = copying
	m := engine.Move{ID: engine.MoveID(c.ID), From: c.From, To: c.To, Pages: c.Pages}
	memory := x.memory(c)
	if slices.Contains(c.Pages, kv.NoPage) { // a Read without the pages that the device has
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

// copied continues a move after the device's copy.
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

// put submits the Put of c's buffer, or holds it while it must wait.
func (x *Carrier) put(c *carry) {
	switch {
	case c.cause != nil:
		x.finish(c, c.cause)
	case x.mustWait(c):
		c.stage = queued
		x.held = append(x.held, c)
	default:
		c.stage = storing
		x.submit(c, c.To, mempool.Put)
	}
}

// mustWait reports whether c's Put must wait: for the Put of its parent, or for a Put of the same
// extent that was given up. If that one succeeds, its extent is dropped, see outlived.
func (x *Carrier) mustWait(c *carry) bool {
	return x.parentComes(c) || slices.ContainsFunc(x.lost, func(o *carry) bool {
		return o.stage == storing && o.To == c.To && o.Extent.Key == c.Extent.Key
	})
}

// parentComes reports whether there is a write of the parent of c's extent to the same tier whose Put
// has not been submitted. A store accepts a Put only after its parent's Put was submitted.
func (x *Carrier) parentComes(c *carry) bool {
	parent := x.writes[target{c.To, c.Extent.Parent}]
	return parent != nil && parent.stage < storing && parent.cause == nil
}

// release submits held writes that need not wait any longer.
func (x *Carrier) release() {
	for again := true; again; {
		again = false
		for i, c := range x.held {
			if c.cause != nil || !x.mustWait(c) {
				x.held = slices.Delete(x.held, i, i+1)
				x.put(c)
				again = true
				break
			}
		}
	}
}

// submit submits the operation of a carry to the store of tier t.
func (x *Carrier) submit(c *carry, t kv.Tier, kind mempool.OpKind) {
	op := mempool.Op{ID: mempool.OpID(c.ID), Kind: kind, Extent: c.Extent}
	if c.buffer != nil {
		op.Pages = x.memory(c)
	}
	if kind == mempool.Probe {
		op.Extent = c.probed[0]
		for i := range c.probed[1:] {
			op.Then = append(op.Then, c.probed[1+i].Key)
		}
	}
	if err := x.stores[t].Submit(op); err != nil {
		x.finish(c, err)
	}
}

// dropTime bounds a drop, for which the book sets no deadline.
const dropTime = 10 * time.Second

// Limit sets the time by which all moves end, also those whose deadlines are later.
func (x *Carrier) Limit(at time.Time) {
	x.limit = at
	x.arm()
}

// due returns the deadline of a move on the wall clock; zero if it has none.
func (x *Carrier) due(c *carry) (at time.Time) {
	switch {
	case c.Deadline != 0:
		at = x.cfg.Start.Add(c.Deadline)
	case c.Kind == tiering.Drop:
		at = c.begun.Add(dropTime)
	}
	if !x.limit.IsZero() && (at.IsZero() || x.limit.Before(at)) {
		return x.limit
	}
	return at
}

// stored continues a move after its store's operation has ended.
func (x *Carrier) stored(t kv.Tier, d *mempool.Done) {
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
		c.gone = d.Gone
		x.finish(c, d.Err)
	case c.stage == looking:
		c.found = min(d.Found, len(c.probed))
		x.finish(c, nil)
	case c.stage != fetching:
		x.finish(c, nil)
	case c.cause != nil:
		x.finish(c, c.cause)
	case c.Kind == tiering.Read:
		x.copy(c)
	default:
		x.put(c)
	}
}

// finish reports the end of a move or probe and releases its buffer.
func (x *Carrier) finish(c *carry, err error) {
	x.report(c, err)
	x.giveBack(c)
}

// report unregisters a move or probe and reports its end.
func (x *Carrier) report(c *carry, err error) {
	x.untrack(c)
	if c.ID&probing != 0 {
		x.probed = append(x.probed, Probed{ProbeID(c.ID &^ probing), c.From, c.probed[:c.found]})
	} else {
		x.ended = append(x.ended, Ended{ID: c.ID, Err: err, Took: c.took, Gone: c.gone, GoneFrom: c.at()})
	}
}

// giveBack releases c's buffer, if it has one.
func (x *Carrier) giveBack(c *carry) {
	if c.buffer != nil {
		x.buffers = append(x.buffers, c.buffer)
		c.buffer = nil
		x.kept--
	}
}

// cancel ends a move soon. A copy by the device runs to its end, because its pages are in use
// until then.
func (x *Carrier) cancel(id tiering.MoveID) {
	if c := x.moves[id]; c != nil {
		x.stop(c, mempool.ErrCanceled)
	}
}

// stop makes a move end with the error cause before its next step, and asks the store that works on it
// to end its operation. The next Poll ends a move that no store works on.
func (x *Carrier) stop(c *carry, cause error) {
	c.cause = cmp.Or(c.cause, cause)
	switch c.stage {
	case copying:
	case queued:
		x.watch.wake()
	default:
		x.stores[c.at()].Cancel(mempool.OpID(c.ID), cause)
	}
}

// overdue ends the moves and probes that are past their deadlines: no other place has deadlines. Most
// stores end such a move's operation when they are told to. If one does not, the move is given up, and
// its buffer stays with the store until the operation ends.
func (x *Carrier) overdue(now time.Time) {
	late := x.late[:0]
	for _, c := range x.moves { // each ends alike, in any order
		due := x.due(c)
		if c.stage == copying || due.IsZero() || now.Before(due) {
			continue
		}
		if c.stage == queued {
			x.held = slices.DeleteFunc(x.held, func(o *carry) bool { return o == c })
			x.finish(c, mempool.ErrDeadline)
			continue
		}
		x.stop(c, mempool.ErrDeadline)
		late = append(late, c)
	}
	if len(late) > 0 {
		x.collect()
	}
	for _, c := range late {
		if x.moves[c.ID] == c && c.stage != copying { // else it has ended, or has gone on to the device
			x.lost = append(x.lost, c)
			x.report(c, fmt.Errorf("%w: the store of tier %v does not answer", mempool.ErrDeadline, c.at()))
		}
	}
	clear(late)
	x.late = late[:0]
}

// at returns the tier whose store works on c.
func (c *carry) at() kv.Tier {
	if c.stage == storing {
		return c.To
	}
	return c.From
}

// outlived handles the end of an operation whose move was given up. If the operation was a Put that
// succeeded, outlived drops the extent again: the book does not know that the store has it.
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

// forget handles the end of a Drop that outlived submitted.
func (x *Carrier) forget(id mempool.OpID, t kv.Tier) {
	x.lost = slices.DeleteFunc(x.lost, func(c *carry) bool { return c.ID == tiering.MoveID(id&^undo) && c.To == t })
}
