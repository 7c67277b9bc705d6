package kvindex

import (
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// heat is the latest accesses to a run, oldest first. The nil heat is empty.
type heat struct{ uses []use }

// use is one access: to the first blocks of a run.
type use struct {
	access uint64 // its number, the same in all runs that it went through
	at     time.Duration
	blocks int
}

// maxUses bounds what is remembered of a run; the oldest are forgotten first.
const maxUses = 1024

// Record notes an access and appends for each block on its way how often it was
// accessed within [Config.Window] before, in order, zeros left out. Blocks count
// whoever holds them, as long as they are in the index. now is the time since some
// fixed moment and never less than in the call before. It panics without a Window.
func (x *Index) Record(locals []kv.LocalHash, now time.Duration, dst []uint32) []uint32 {
	if x.cfg.Window == 0 {
		panic("kvindex: Record: Config.Window is 0")
	}
	x.clock++
	for id := root; len(locals) > 0; {
		e := x.edges.get(uint64(locals[0]), uint32(id))
		if e == nil {
			break
		}
		id = e.to
		n := x.node(id)
		same := commonPrefix(n.locals, locals)
		dst = x.countUses(n, same, now, dst)
		if n.heat == nil {
			n.heat = &heat{}
		}
		n.heat.add(use{x.clock, now, same})
		if locals = locals[same:]; same < len(n.locals) {
			break
		}
	}
	return dst
}

// countUses forgets old uses and appends how many of the others each of the
// first blocks had.
func (x *Index) countUses(n *node, blocks int, now time.Duration, dst []uint32) []uint32 {
	if n.heat == nil {
		return dst
	}
	old := 0
	for old < len(n.heat.uses) && n.heat.uses[old].at <= now-x.cfg.Window {
		old++
	}
	n.heat.uses = append(n.heat.uses[:0], n.heat.uses[old:]...)
	x.counts = append(x.counts[:0], make([]uint32, blocks+1)...)
	for _, u := range n.heat.uses {
		x.counts[min(u.blocks, blocks)]++
	}
	for i := blocks - 1; i > 0; i-- { // who went to i+1 went to i
		x.counts[i] += x.counts[i+1]
	}
	for _, c := range x.counts[min(1, blocks):] {
		if c > 0 {
			dst = append(dst, c)
		}
	}
	return dst
}

func (h *heat) add(u use) {
	if len(h.uses) == maxUses {
		h.uses = append(h.uses[:0], h.uses[maxUses/8:]...)
	}
	h.uses = append(h.uses, u)
}

// truncate notes that a run has only its first k blocks now.
func (h *heat) truncate(k int) {
	if h == nil {
		return
	}
	for i := range h.uses {
		h.uses[i].blocks = min(h.uses[i].blocks, k)
	}
}

// split is the heat of both parts of a run that is cut after k blocks.
func (h *heat) split(k int) (upper, lower *heat) {
	if h == nil {
		return nil, nil
	}
	upper, lower = &heat{}, &heat{}
	for _, u := range h.uses {
		upper.uses = append(upper.uses, use{u.access, u.at, min(u.blocks, k)})
		if u.blocks > k {
			lower.uses = append(lower.uses, use{u.access, u.at, u.blocks - k})
		}
	}
	return upper, lower
}

// join is the heat of a run of k blocks and the one behind it as one: an access to
// both has the same number in both.
func (h *heat) join(lower *heat, k int) *heat {
	if h == nil || lower == nil {
		return h
	}
	i := 0
	for j := range h.uses {
		for i < len(lower.uses) && lower.uses[i].access < h.uses[j].access {
			i++
		}
		if i < len(lower.uses) && lower.uses[i].access == h.uses[j].access {
			h.uses[j].blocks = k + lower.uses[i].blocks
		}
	}
	return h
}
