package schedtest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool/tiering"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

// lower is a tier below the device, as the shell keeps it: the bytes of pages by what
// they hold, and the moves that are under way.
type lower struct {
	kept    map[string][]byte // by namespace and tokens up to the page's end
	keys    []radixcache.Key  // that have been offloaded, oldest first
	pending map[engine.MoveID]*moving
	letters int // endings under way to the scheduler
	tell    func(engine.Moved)
}

// moving is a move that has begun.
type moving struct {
	tiering.Move
	memory [][]byte
}

func newLower() lower {
	return lower{kept: map[string][]byte{}, pending: map[engine.MoveID]*moving{}}
}

// busy reports whether a move has not ended for the scheduler.
func (l *lower) busy() bool { return len(l.pending)+l.letters > 0 }

// name is the key of page i of a move.
func (m *moving) name(i, pageTokens int) string {
	end := len(m.Extent.Tokens) - (len(m.Pages)-1-i)*pageTokens
	name := fmt.Appendf(nil, "%q ", m.Extent.Namespace)
	for _, t := range m.Extent.Tokens[:end] {
		name = binary.LittleEndian.AppendUint32(name, uint32(t))
	}
	return string(name)
}

// offload has the scheduler copy what is cached of a key.
func (r *rig) offload(key radixcache.Key) (tokens int, err error) {
	id, tokens, err := r.sched.Offload(key, kv.TierHost)
	if err == nil {
		r.sum.num(uint64(id), uint64(tokens))
		r.note("offload %d tokens by move %d", tokens, id)
	}
	r.sum.error(err)
	r.sum.seal()
	return tokens, err
}

// onboard has the scheduler copy back what is missing of a key.
func (r *rig) onboard(key radixcache.Key) (from int, err error) {
	id, from, err := r.sched.Onboard(key, kv.TierHost)
	if err == nil {
		r.note("onboard tokens [%d,%d) by move %d", from, len(key.Tokens), id)
	}
	r.sum.num(uint64(id), uint64(from))
	r.sum.error(err)
	r.sum.seal()
	r.pump()
	return from, err
}

// begin begins the moves of a plan. The error is that of a device that is lost.
func (r *rig) begin(p *scheduler.Plan) error {
	size := r.info.PageTokens
	for i := range p.Moves {
		m := &moving{Move: p.Moves[i], memory: make([][]byte, len(p.Moves[i].Pages))}
		r.report.MovedPages += len(m.Pages)
		r.lower.pending[engine.MoveID(m.ID)] = m
		for j := range m.memory {
			m.memory[j] = make([]byte, r.info.PageBytes)
			if m.To == kv.TierDevice {
				copy(m.memory[j], r.lower.kept[m.name(j, size)])
			}
		}
		err := r.oracle.Move(&engine.Move{ID: engine.MoveID(m.ID), From: m.From, To: m.To, Pages: m.Pages}, m.memory)
		if lost := (*engine.Error)(nil); errors.As(err, &lost) {
			return err
		}
		if err != nil {
			r.fail("moves", fmt.Errorf("move %d: %w", m.ID, err))
		}
	}
	return nil
}

// moved passes the endings of moves on to the scheduler.
func (r *rig) moved() {
	for _, d := range r.oracle.Moved(nil) {
		m := r.lower.pending[d.ID]
		if m == nil {
			r.fail("moves", fmt.Errorf("move %d ends, which has not begun or has ended", d.ID))
			return
		}
		delete(r.lower.pending, d.ID)
		if d.Err == nil && m.From == kv.TierDevice {
			for i := range m.memory {
				r.lower.kept[m.name(i, r.info.PageTokens)] = m.memory[i]
			}
			r.lower.keys = append(r.lower.keys, radixcache.Key{Namespace: m.Extent.Namespace, Tokens: m.Extent.Tokens})
		}
		if d.Err != nil {
			r.report.FailedMoves++
		}
		if d.Err != nil && m.To == kv.TierDevice && r.planting.due(BelieveMove, r.plans) {
			d.Err = nil
		}
		r.lower.letters++
		r.lower.tell(d)
	}
}

// hear tells the scheduler of the ending of a move.
func (r *rig) hear(d engine.Moved) {
	r.lower.letters--
	if r.failed != nil || r.closed {
		return
	}
	r.note("move %d has ended: %v", d.ID, d.Err)
	r.sched.Moved(r.clock.Now(), tiering.MoveID(d.ID), d.Err, 0)
	r.pump()
}

// move lets pages go and come, in worlds where they do.
func (w *world) move() {
	if w.setup.moves == 0 || w.cache == nil || w.lost != nil || w.over || w.failed != nil || !w.mover.one(w.setup.moves) {
		return
	}
	keys := w.lower.keys
	switch {
	case len(keys) > 0 && w.mover.one(2):
		key := keys[w.mover.IntN(len(keys))]
		if w.mover.one(3) { // as if something else had asked for the pages meanwhile
			w.sched.FlushCache()
			w.pump()
		}
		_, _ = w.onboard(key) // refused where all is there, or no room
	case len(w.book.live) > 0:
		req := &w.book.live[w.mover.IntN(len(w.book.live))].req
		_, _ = w.offload(radixcache.Key{Namespace: req.Namespace, PublicTokens: req.PublicTokens, Tokens: req.Prompt})
	}
}
