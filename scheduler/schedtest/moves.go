package schedtest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/scheduler"
)

// lower plays the carrier of a shell: it has the stores below the device, and copies pages to
// and from them. An operation of a store takes some time, and may fail.
type lower struct {
	r        *rig
	layout   mempool.Layout
	cfg      *tiering.Config // nil: there are no tiers
	stores   [kv.Tiers]map[mempool.Key]*record
	moves    map[tiering.MoveID]*carried
	ledger   *tierLedger
	parks    *parks
	messages int                                 // messages to the scheduler in flight
	took     func(m *tiering.Move) time.Duration // draws the duration of the next operation of a move
	fault    func(m *tiering.Move) (error, bool) // draws the operation's error, and whether it misses its deadline
	ended    func(c *carried, err error)         // called with each ending; may be nil
	speedup  time.Duration                       // factor by which stores report too short times
	lost     []*record                           // that the shared store had
}

// record is an extent in a store.
type record struct {
	extent   mempool.Extent
	pages    [][]byte
	contents []*content // of its pages; nil: KV of another process, or from before a restart
	foreign  bool       // another process has written it; the scheduler may not know it
}

// carried is a move that has not ended.
type carried struct {
	tiering.Move
	began    []kv.PageID // Pages when the move began, which must stay so
	memory   [][]byte
	contents []*content // of memory
	canceled bool
	copying  bool       // pages are being copied to or from the device
	stored   bool       // the move has ended, so puts of children need not wait for it
	children []*carried // puts of child extents that wait for the end of this put
}

func newLower(r *rig, cfg *tiering.Config) lower {
	l := lower{r: r, cfg: cfg, moves: map[tiering.MoveID]*carried{}, speedup: 1}
	l.took = func(*tiering.Move) time.Duration { return 0 }
	l.fault = func(*tiering.Move) (error, bool) { return nil, false }
	if cfg != nil {
		l.layout = cfg.Layout
		for i := range l.stores {
			l.stores[i] = map[mempool.Key]*record{}
		}
	}
	return l
}

// busy reports whether the scheduler has not been told the end of some move.
func (l *lower) busy() bool { return len(l.moves)+l.messages > 0 }

// reading reports whether a part of o's prompt is read from a lower tier.
func (l *lower) reading(o *order) bool {
	for _, c := range l.moves {
		x := &c.Extent
		if end := x.Start + len(x.Tokens); c.Kind == tiering.Read && end <= len(o.req.Prompt) && slices.Equal(o.req.Prompt[x.Start:end], x.Tokens) {
			return true
		}
	}
	return false
}

// begin starts the moves of the plan p and applies its cancellations. It returns an error
// if the device is lost.
func (l *lower) begin(p *scheduler.Plan) error {
	for i := range p.Moves {
		m := &p.Moves[i]
		if m.Kind == tiering.Cancel {
			l.cancel(m.ID)
			continue
		}
		c := &carried{Move: *m, began: slices.Clone(m.Pages), contents: l.r.failed.taken(m.ID)}
		l.moves[m.ID] = c
		l.r.note("%v", formatMove(m))
		switch {
		case m.Kind == tiering.Write && m.From == kv.TierDevice:
			if err := l.copy(c); err != nil {
				return err
			}
		default:
			l.later(c, l.operate)
		}
	}
	return nil
}

// copy starts to copy the pages of the move c to or from the device. It returns an error if
// the device is lost; other errors of the device fail the rig.
func (l *lower) copy(c *carried) error {
	m := engine.Move{ID: engine.MoveID(c.ID), From: kv.TierDevice, To: kv.TierHost}
	if c.Kind == tiering.Read {
		m.From, m.To = m.To, m.From
	}
	var memory [][]byte
	for i, p := range c.Pages {
		if c.Kind == tiering.Write {
			c.memory = append(c.memory, make([]byte, l.r.info.PageBytes))
		}
		if p != kv.NoPage {
			m.Pages, memory = append(m.Pages, p), append(memory, c.memory[i])
		}
	}
	l.r.report.MovedPages += len(m.Pages)
	c.copying = true
	err := l.r.oracle.Move(&m, memory)
	if lost := (*engine.Error)(nil); errors.As(err, &lost) {
		return err
	}
	if err != nil {
		l.r.fail("moves", "move %d: %v", m.ID, err)
	}
	return nil
}

// copied handles the copies to and from the device that have ended. A Read ends with its
// copy; a Write goes on to the operation of its store.
func (l *lower) copied() {
	for _, d := range l.r.oracle.Moved(nil) {
		c := l.moves[tiering.MoveID(d.ID)]
		switch {
		case c == nil || !c.copying:
			l.r.fail("moves", "the copy of move %d ends, but the move has not begun or has ended", d.ID)
		case c.Kind == tiering.Read || d.Err != nil:
			l.end(c, d.Err)
		default:
			c.copying = false
			if c.ID%3 > 0 { // the other third is reported with the ending
				l.tell(func() { l.r.sched.Copied(l.r.clock.Now(), c.ID) })
			}
			l.later(c, l.operate)
		}
	}
}

// later calls do for c, with the error of the store's operation, when that operation has
// ended. An operation that would end after the deadline of c fails at that deadline. If the
// operation hangs, later never calls do.
func (l *lower) later(c *carried, do func(*carried, error)) {
	now := l.r.clock.Now()
	err, late := l.fault(&c.Move)
	at := now + l.took(&c.Move)
	if late && c.Deadline > 0 || c.Deadline > 0 && at > c.Deadline {
		at, err = max(c.Deadline, now), mempool.ErrDeadline
	}
	if errors.Is(err, errHangs) {
		return // until it is canceled
	}
	l.r.clock.At(at, func() {
		if !l.r.closed && l.moves[c.ID] == c {
			do(c, err)
		}
	})
}

// operate applies the store's operation of c, which has ended with err: it reads, writes or
// drops the record, and ends the move or starts its copy to the device. A put whose parent
// is still being put waits for the parent's end.
func (l *lower) operate(c *carried, err error) {
	k := c.Extent.Key
	switch {
	case c.canceled:
		err = mempool.ErrCanceled
	case c.Kind == tiering.Drop:
		if err = l.mayDrop(c.From, k); err == nil {
			delete(l.stores[c.From], k)
		}
	case c.From != kv.TierDevice && err == nil:
		if err = l.get(c); err == nil && c.Kind == tiering.Read {
			l.r.failed.filled(c.Pages, c.contents)
			if err := l.copy(c); err != nil {
				l.r.shut(err)
			}
			return
		}
	case c.From != kv.TierDevice:
		l.bad(c, err)
	}
	if c.Kind == tiering.Write && err == nil {
		if parent := l.putting(c); parent != nil {
			parent.children = append(parent.children, c)
			return
		}
		err = l.put(c)
	}
	l.end(c, err)
}

func (l *lower) mayDrop(t kv.Tier, k mempool.Key) error {
	if l.stores[t][k] == nil {
		return mempool.ErrMiss
	}
	for _, c := range sortedKeys(l.stores[t]) {
		switch r := l.stores[t][c]; {
		case r == nil || r.extent.Parent != k:
		case r.foreign:
			l.lose(t, c)
		default:
			l.r.fail("tiers", "extent %s is dropped from %v before its child %s", k.Short(), t, r.extent.Key.Short())
		}
	}
	return nil
}

// get gives the move c the pages of the record that it reads, as c.memory. It returns
// mempool.ErrMiss if the store has no such record.
func (l *lower) get(c *carried) error {
	rec := l.stores[c.From][c.Extent.Key]
	if rec == nil || l.layout.CheckRead(&rec.extent, &c.Extent) != nil {
		return mempool.ErrMiss
	}
	n := l.layout.Pages(&c.Extent)
	c.memory, c.contents = l.r.bug.read(l, c, rec).pages[:n:n], rec.contents
	return nil
}

// bad removes the record that c could not read because of err, with all its descendants. It
// does nothing if the operation only was too late.
func (l *lower) bad(c *carried, err error) {
	if errors.Is(err, mempool.ErrDeadline) || l.stores[c.From][c.Extent.Key] == nil {
		return
	}
	l.lose(c.From, c.Extent.Key)
}

// lose removes an extent and all its descendants from a store, and tells the scheduler.
func (l *lower) lose(t kv.Tier, k mempool.Key) {
	gone := l.below(t, k, nil)
	for _, k := range gone {
		if t == kv.TierShared {
			l.lost = append(l.lost, l.stores[t][k])
		}
		delete(l.stores[t], k)
	}
	l.tell(func() {
		l.ledger.informed(t, gone)
		l.r.sched.Gone(t, gone)
	})
}

// below appends to dst the descendants of the extent k in the store of t, children first,
// and then k.
func (l *lower) below(t kv.Tier, k mempool.Key, dst []mempool.Key) []mempool.Key {
	for _, x := range sortedKeys(l.stores[t]) {
		if l.stores[t][x].extent.Parent == k {
			dst = l.below(t, x, dst)
		}
	}
	return append(dst, k)
}

// putting returns the put of the parent of c's extent to the same tier, or nil if there is
// none or it has ended.
func (l *lower) putting(c *carried) *carried {
	for _, o := range l.moves { // there is at most one
		if o != c && o.Kind == tiering.Write && o.To == c.To && o.Extent.Key == c.Extent.Parent && !o.stored {
			return o
		}
	}
	return nil
}

func (l *lower) put(c *carried) error {
	t := &l.cfg.Tiers[c.To]
	store := l.stores[c.To]
	switch {
	case !c.Extent.Parent.IsZero() && store[c.Extent.Parent] == nil:
		return mempool.ErrOrphan
	case store[c.Extent.Key] != nil:
		return nil
	case !t.Kept && int64(len(store)+1)*int64(t.SlotBytes) > t.Bytes:
		return mempool.ErrFull
	}
	store[c.Extent.Key] = &record{extent: c.Extent.Clone(), pages: c.memory, contents: c.contents}
	return nil
}

// cancel ends the move id soon. If a copy of the move to or from the device runs, the move
// ends after the copy instead.
func (l *lower) cancel(id tiering.MoveID) {
	c := l.moves[id]
	if c == nil {
		return
	}
	c.canceled = true
	if !c.copying {
		l.r.clock.At(l.r.clock.Now()+l.took(&c.Move), func() {
			if !l.r.closed && l.moves[id] == c && !c.copying {
				l.end(c, mempool.ErrCanceled)
			}
		})
	}
}

// end tells the scheduler that the move c has ended with err, and continues the puts that
// waited for c.
func (l *lower) end(c *carried, err error) {
	if !slices.Equal(c.Pages, c.began) {
		l.r.fail("moves", "the pages of move %d were %v when it began, and are %v at its end", c.ID, c.began, c.Pages)
	}
	delete(l.moves, c.ID)
	c.stored = true
	l.count(c, err)
	if l.ended != nil {
		l.ended(c, err)
	}
	err, ok := l.r.bug.moved(l, c, err)
	if !ok {
		return
	}
	took := l.took(&c.Move) / l.speedup
	l.tell(func() {
		l.r.note("move %d has ended: %v", c.ID, err)
		if c.Kind == tiering.Write && err != nil {
			l.ledger.informed(c.To, []mempool.Key{c.Extent.Key})
		}
		l.r.sched.Moved(l.r.clock.Now(), c.ID, err, took)
	})
	for _, child := range c.children {
		if l.moves[child.ID] == child { // not canceled meanwhile
			l.operate(child, nil)
		}
	}
}

// count counts the move c, which has ended with err, in the report.
func (l *lower) count(c *carried, err error) {
	m := &l.r.report.Moves
	switch {
	case c.Kind == tiering.Write && err == nil:
		m.Writes++
		if c.To == kv.TierHost && (l.stores[kv.TierDisk][c.Extent.Key] != nil || l.stores[kv.TierShared][c.Extent.Key] != nil) {
			m.Promotions++
		}
	case c.Kind != tiering.Read:
	case err == nil:
		m.Reads++
	case errors.Is(err, mempool.ErrDeadline):
		m.Late++
	case errors.Is(err, mempool.ErrCanceled):
		m.Canceled++
	default:
		m.Failed++
	}
}

// refind lets another process write the extent that the shared store lost last, and tells the
// scheduler, as after a Probe.
func (l *lower) refind() {
	last := len(l.lost) - 1
	rec, store := l.lost[last], l.stores[kv.TierShared]
	l.lost = l.lost[:last]
	if x := &rec.extent; store[x.Key] == nil && (x.Parent.IsZero() || store[x.Parent] != nil) {
		store[x.Key] = &record{extent: rec.extent, pages: rec.pages, foreign: true}
		l.r.note("another process writes %s", x.Key.Short())
		l.tell(func() { l.r.sched.Found(kv.TierShared, []mempool.Extent{*x}) })
	}
}

// lookAgain tells the scheduler all that other processes have written to the shared store, if it
// knows less than the store has. The scheduler ignores what it hears of while its own write under
// the same key is in flight, if that write is of wrong KV: it can't tell the records apart.
func (l *lower) lookAgain() {
	store := l.stores[kv.TierShared]
	if len(store) == l.r.sched.Metrics().Tiers[kv.TierShared].Extents {
		return
	}
	var found []mempool.Extent
	for _, k := range sortedKeys(store) {
		if store[k].foreign {
			found = append(found, store[k].extent)
		}
	}
	slices.SortStableFunc(found, func(a, b mempool.Extent) int { return cmp.Compare(a.Start, b.Start) }) // parents first
	l.r.note("another look at the shared tier finds %d extents of other processes", len(found))
	l.r.sched.Found(kv.TierShared, found)
	l.r.publish(l.r.sched.TakeEvents(l.r.events[:0]))
}

// probe tells the scheduler what the shared store has of a prompt now, as a shell does when a
// request arrives: that may be the scheduler's own writes, before it has heard of their ends.
func (l *lower) probe(ns kv.Namespace, prompt []kv.Token) {
	store := l.stores[kv.TierShared]
	if len(store) == 0 {
		return
	}
	var found []mempool.Extent
	for _, x := range l.layout.AppendExtents(nil, ns, prompt, nil) {
		if store[x.Key] == nil {
			break
		}
		found = append(found, x)
	}
	if len(found) > 0 {
		l.r.note("the shared tier has %d extents of a prompt", len(found))
		l.tell(func() { l.r.sched.Found(kv.TierShared, found) })
	}
}

// tell posts a message to the scheduler; the function what runs when the message arrives.
func (l *lower) tell(what func()) {
	l.messages++
	l.r.post(toScheduler, func() {
		l.messages--
		if !l.r.closed {
			what()
			l.r.pump()
		}
	})
}

// errIO is a failure of a store.
var errIO = fmt.Errorf("schedtest: this operation of a store fails: %w", syscall.EIO)

// errHangs makes an operation hang until it is canceled.
var errHangs = errors.New("schedtest: this operation of a store hangs")

func formatMove(m *tiering.Move) string {
	return fmt.Sprintf("move %d: %v %v to %v, pages %s hold [%d,%d) of %s", m.ID, m.Kind, m.From, m.To, formatPages(m.Pages), m.Extent.Start, m.Extent.Start+len(m.Extent.Tokens), m.Extent.Key.Short())
}

// move removes extents from a shared tier and adds some again, as other processes do.
func (w *world) move() {
	store := w.lower.stores[kv.TierShared]
	if len(w.lower.lost) > 0 && w.lost == nil && w.others.one(20) {
		w.lower.refind()
	}
	if len(store) == 0 || w.lost != nil || !w.mover.one(40) {
		return
	}
	keys := sortedKeys(store)
	w.lower.lose(kv.TierShared, keys[w.mover.IntN(len(keys))])
}
