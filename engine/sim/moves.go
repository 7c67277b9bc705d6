package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// maxMoves is the most pending moves; one more gets ErrBusy.
const maxMoves = 1024

// moving holds the state of moves. The device has one channel to the host for each direction; both
// work in parallel to steps. Backend.mu guards it.
type moving struct {
	pending          []*ticket     // pending moves, in the order of the calls of Move
	toHost, fromHost time.Duration // time when each channel has done its moves
	ended            []engine.Moved
	ready            chan struct{} // has a capacity of 1
	// writes maps each device page that a pending move writes to the latest such move, and reads
	// each page that a pending move reads.
	writes, reads map[kv.PageID]engine.MoveID
	awaited       map[engine.MoveID]bool // pending moves that a submitted batch waits for; later batches run after that batch
}

func newMoving() moving {
	return moving{ready: make(chan struct{}, 1), writes: map[kv.PageID]engine.MoveID{}, reads: map[kv.PageID]engine.MoveID{}, awaited: map[engine.MoveID]bool{}}
}

// Move implements engine.Mover. Each direction takes one move after another, at the
// profile's bandwidth. A move begins after all batches that were submitted before it.
func (b *Backend) Move(m *engine.Move, memory [][]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ended(); err != nil {
		return err
	}
	if err := b.info.CheckMove(m, memory); err != nil {
		return err
	}
	if len(b.moving.pending) == maxMoves {
		return engine.ErrBusy
	}
	t := &ticket{backend: b, move: m.ID}
	if b.cfg.Faults.Move != nil {
		if err := b.cfg.Faults.Move(m.ID); err != nil {
			t.fail = fmt.Errorf("%w: move %d: %w", engine.ErrMove, m.ID, err)
		}
	}
	x := &b.moving
	channel, pages := &x.toHost, x.reads
	if m.To == kv.TierDevice {
		channel, pages = &x.fromHost, x.writes
	}
	for i, p := range m.Pages {
		pages[p] = m.ID
		switch {
		case m.To != kv.TierDevice && t.fail == nil:
			b.pool.save(memory[i], p)
		case m.To == kv.TierDevice:
			b.device.arrive(p, t.fail, memory[i])
		}
	}
	if t.fail == nil && b.cfg.Sanitize == Full {
		t.lent.lendMemory(memory, m.To != kv.TierDevice)
	}
	*channel = later(max(*channel, b.free, b.now()), b.cfg.Profile.Transfer(len(m.Pages)*b.pageBytes))
	t.end = *channel
	x.pending = append(x.pending, t)
	b.arm(t)
	return nil
}

// arrive loads page p from memory. If the move has failed, arrive instead marks p as not written.
func (d *device) arrive(p kv.PageID, failed error, memory []byte) {
	if failed != nil {
		if d.unmoved == nil {
			d.unmoved = map[kv.PageID]bool{}
		}
		d.unmoved[p] = true
		return
	}
	delete(d.unmoved, p)
	d.pool.load(p, memory)
}

// Moved implements engine.Mover.
func (b *Backend) Moved(dst []engine.Moved) []engine.Moved {
	b.mu.Lock()
	defer b.mu.Unlock()
	dst = append(dst, b.moving.ended...)
	b.moving.ended = b.moving.ended[:0]
	return dst
}

// Ready implements engine.Mover.
func (b *Backend) Ready() <-chan struct{} { return b.moving.ready }

// after returns the time when all pending moves of ids have ended; 0 if none of ids is pending.
func (x *moving) after(ids []engine.MoveID) time.Duration {
	at := time.Duration(0)
	for _, t := range x.pending {
		if slices.Contains(ids, t.move) {
			at = max(at, t.end)
		}
	}
	return at
}

// end records that the move of t has ended, with err. The caller removes t from pending.
func (x *moving) end(t *ticket, err error) {
	for _, pages := range []map[kv.PageID]engine.MoveID{x.writes, x.reads} {
		for p, id := range pages { // any order: only deletes
			if id == t.move {
				delete(pages, p)
			}
		}
	}
	delete(x.awaited, t.move)
	t.complete(err)
	x.ended = append(x.ended, engine.Moved{ID: t.move, Err: err})
	select {
	case x.ready <- struct{}{}:
	default:
	}
}

// checkMoves returns an error if batch uses a page that a pending move writes, or writes a page
// that a pending move reads, and neither batch nor an earlier batch lists the move in After.
func (b *Backend) checkMoves(batch *engine.Batch) error {
	x := &b.moving
	if len(x.pending) == 0 || b.cfg.Sanitize == Off {
		return nil
	}
	for _, id := range batch.After {
		if slices.ContainsFunc(x.pending, func(t *ticket) bool { return t.move == id }) {
			x.awaited[id] = true
		}
	}
	missing := func(p kv.PageID, writes bool) engine.MoveID {
		if id := x.writes[p]; id != 0 && !x.awaited[id] {
			return id
		}
		if id := x.reads[p]; writes && id != 0 && !x.awaited[id] {
			return id
		}
		return 0
	}
	for i, c := range batch.Copies {
		if id := max(missing(c.Src, false), missing(c.Dst, true)); id != 0 {
			return fmt.Errorf("%w: batch %d, copy %d, page %d to page %d: move %d is pending and not in After", ErrCorrupt, batch.Seq, i, c.Src, c.Dst, id)
		}
	}
	for i := range batch.Rows {
		r := &batch.Rows[i]
		size := b.info.PageTokens
		for j, p := range b.device.tables.Of(r.Slot)[:kv.CeilPages(int(r.Start)+r.Len(), size)] {
			if id := missing(p, (j+1)*size > int(r.Start)); id != 0 {
				return fmt.Errorf("%w: batch %d, row %d, position %d, page %d: move %d is pending and not in After", ErrCorrupt, batch.Seq, i, j*size, p, id)
			}
		}
	}
	return nil
}

// void reports whether row r reads a page that a failed move should have written. r.Pages must
// have all pages of the row. Pages that r writes from their first KV slot on become valid again.
func (d *device) void(r *engine.Row) bool {
	if len(d.unmoved) == 0 {
		return false
	}
	size, start := d.pool.mask+1, int(r.Start)
	void := false
	for j, p := range r.Pages {
		if d.unmoved[p] && j*size < start {
			void = true
		}
	}
	for j, p := range r.Pages {
		if j*size >= start {
			delete(d.unmoved, p)
		}
	}
	return void
}

// copied reports whether a failed move should have written page c.Src. If so, the copy must not
// run, and copied marks c.Dst as not written, too. Otherwise it removes such a mark from c.Dst.
func (d *device) copied(c engine.PageCopy) (void bool) {
	if d.unmoved[c.Src] {
		d.unmoved[c.Dst] = true
		return true
	}
	delete(d.unmoved, c.Dst)
	return false
}
