package enginetest

import (
	"errors"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// begin begins a move and returns its number. The error is Move's: the move has not begun.
func (r *rig) begin(from, to kv.Tier, pages []kv.PageID, memory [][]byte) (engine.MoveID, error) {
	r.moves++
	return r.moves, r.mover.Move(&engine.Move{ID: r.moves, From: from, To: to, Pages: pages}, memory)
}

// await waits for the end of move id and returns its error.
func (r *rig) await(id engine.MoveID) error {
	for {
		for _, m := range r.mover.Moved(nil) {
			if _, twice := r.ended[m.ID]; twice || m.ID == 0 || m.ID > r.moves {
				failf("move %d of %d ends, maybe again", m.ID, r.moves)
			}
			if r.ended == nil {
				r.ended = map[engine.MoveID]error{}
			}
			r.ended[m.ID] = m.Err
		}
		if err, ok := r.ended[id]; ok {
			return err
		}
		<-r.mover.Ready()
	}
}

// hostPages allocates host memory for n pages, and returns a function that frees it.
func (r *rig) hostPages(n int) (memory [][]byte, free func()) {
	all := must(r.mover.HostAlloc(n * r.info.PageBytes))
	for i := range n {
		memory = append(memory, all[i*r.info.PageBytes:][:r.info.PageBytes:r.info.PageBytes])
	}
	return memory, func() { r.mover.HostFree(all) }
}

// checkMoves moves a sequence's pages to the host and back into other pages, while the original
// ones are overwritten by a batch that waits for the first move on the device. Nothing else
// waits: moves see the results of earlier batches, and batches name moves in After.
func checkMoves(h *harness) {
	const steps = 4
	reqs := h.requests(3, steps)
	q, other := reqs[2], reqs[1]
	r := h.open(usual(8))
	s := r.sequence(0, q.params, q.prompt, steps)
	prefill := &engine.Batch{Binds: []engine.SlotBind{s.bind()}, Rows: []engine.Row{s.row(&r.info, 100)}}
	first := must(r.submit(prefill))
	used := kv.CeilPages(len(q.prompt), r.info.PageTokens)
	memory, free := r.hostPages(used)
	defer free()
	saved := must(r.begin(kv.TierDevice, kv.TierHost, s.pages[:used], memory))
	o := r.sequence(1, other.params, other.prompt, steps)
	copy(o.pages, s.pages)
	over := &engine.Batch{After: []engine.MoveID{saved}, Binds: []engine.SlotBind{o.bind()}, Rows: []engine.Row{o.row(&r.info, 100)}}
	second := must(r.submit(over))
	ok(r.await(saved))
	for _, x := range []struct {
		s *sequence
		b *engine.Batch
		t engine.Ticket
	}{{s, prefill, first}, {o, over, second}} {
		x.s.take(x.b, must(wait(x.t)), 0)
	}
	for len(o.out) < steps {
		r.step(1, nil, o)
	}
	r.restore(s, used, steps, memory)
	equal("restored request", s.out, q.want)
	equal("the one on its old pages", o.out, other.want)
	r.badMoves(memory)
}

// restore moves s back, to other pages in another order, and continues it. After the end of the move
// the memory is the caller's again, and restore overwrites it.
func (r *rig) restore(s *sequence, used, steps int, memory [][]byte) {
	s.pages = r.pages(len(s.prompt) + steps)
	in, from := slices.Clone(s.pages[:used]), slices.Clone(memory)
	slices.Reverse(in)
	slices.Reverse(from)
	back := must(r.begin(kv.TierHost, kv.TierDevice, in, from))
	b := &engine.Batch{After: []engine.MoveID{back}, Rows: []engine.Row{s.row(&r.info, 100)}}
	s.take(b, r.run(b), 0)
	ok(r.await(back))
	for _, m := range memory {
		clear(m)
	}
	for len(s.out) < steps {
		r.step(1, nil, s)
	}
	for i, m := range memory {
		if slices.ContainsFunc(m, func(b byte) bool { return b != 0 }) {
			failf("page %d of a move's memory was written after the move's end", i)
		}
	}
}

// badMoves submits moves that must be refused, and fails if one is not.
func (r *rig) badMoves(memory [][]byte) {
	good := engine.Move{ID: r.moves + 1, From: kv.TierDevice, To: kv.TierHost, Pages: []kv.PageID{0}}
	for _, c := range []struct {
		name   string
		change func(m *engine.Move, memory [][]byte) [][]byte
	}{
		{"no number", func(m *engine.Move, memory [][]byte) [][]byte { m.ID = 0; return memory }},
		{"page -1", func(m *engine.Move, memory [][]byte) [][]byte { m.Pages = []kv.PageID{-1}; return memory }},
		{"page past end", func(m *engine.Move, memory [][]byte) [][]byte {
			m.Pages = []kv.PageID{kv.PageID(r.info.NumPages)}
			return memory
		}},
		{"short memory", func(_ *engine.Move, memory [][]byte) [][]byte { return [][]byte{memory[0][1:]} }},
		{"memory for none", func(*engine.Move, [][]byte) [][]byte { return nil }},
		{"no direction", func(m *engine.Move, memory [][]byte) [][]byte { m.To = kv.TierDevice; return memory }},
	} {
		m := good
		if err := r.mover.Move(&m, c.change(&m, memory[:1:1])); !errors.Is(err, engine.ErrInvalid) {
			failf("a move with %s: %v, want ErrInvalid", c.name, err)
		}
	}
}

// moveControls are movers that checkMoves must fail.
func moveControls() []control {
	var used [][]byte // memory of the latest move
	return []control{
		{"moves", "writes to a move's memory after its end", with(broken{
			move: func(b *broken, m *engine.Move, memory [][]byte) error {
				used = memory
				return b.Mover.Move(m, memory)
			},
			batch: func(b *broken, x *engine.Batch) {
				if len(used) > 0 && len(x.After) == 0 {
					used[0][0] = 1
				}
			},
		})},
		{"moves", "drops moves from the host", with(broken{move: func(b *broken, m *engine.Move, memory [][]byte) error {
			if m.To == kv.TierDevice {
				m, memory = &engine.Move{ID: m.ID, From: m.From, To: m.To}, nil
			}
			return b.Mover.Move(m, memory)
		}})},
		{"moves", "mixes up the pages of moves to the host", with(broken{move: func(b *broken, m *engine.Move, memory [][]byte) error {
			if n := len(memory); n > 1 && m.From == kv.TierDevice {
				memory[0], memory[n-1] = memory[n-1], memory[0]
			}
			return b.Mover.Move(m, memory)
		}})},
		{"moves", "begins moves that can't be", with(broken{move: func(b *broken, m *engine.Move, memory [][]byte) error {
			if err := b.Mover.Move(m, memory); !errors.Is(err, engine.ErrInvalid) {
				return err
			}
			return nil
		}})},
	}
}
