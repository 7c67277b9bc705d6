package enginetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// begin begins a move and returns its number. The error is Move's: the move has not begun.
func (r *rig) begin(from, to kv.Tier, pages []kv.PageID, memory [][]byte) (engine.MoveID, error) {
	r.moves++
	return r.moves, r.mover.Move(&engine.Move{ID: r.moves, From: from, To: to, Pages: pages}, memory)
}

// await waits for the end of move id and returns its error. If err, the error of begin, is not
// nil, await returns it at once.
func (r *rig) await(id engine.MoveID, err error) error {
	if err != nil {
		return err
	}
	for {
		for _, m := range r.mover.Moved(nil) {
			if _, twice := r.ended[m.ID]; twice || m.ID == 0 || m.ID > r.moves {
				return fmt.Errorf("move %d of %d ends, maybe again", m.ID, r.moves)
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
func (r *rig) hostPages(n int) (memory [][]byte, free func(), err error) {
	all, err := r.mover.HostAlloc(n * r.info.PageBytes)
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		memory = append(memory, all[i*r.info.PageBytes:][:r.info.PageBytes:r.info.PageBytes])
	}
	return memory, func() { r.mover.HostFree(all) }, nil
}

// checkMoves moves a sequence's pages to the host and back into other pages, while the original
// ones are overwritten by a batch that waits for the first move on the device. Nothing else
// waits: moves see the results of earlier batches, and batches name moves in After.
func checkMoves(h *Harness) error {
	const steps = 4
	reqs, err := h.requests(3, steps)
	if err != nil {
		return err
	}
	q, other := reqs[2], reqs[1]
	r := h.open(usual(8))
	s := r.sequence(0, q.params, q.prompt, steps)
	prefill := &engine.Batch{Binds: []engine.SlotBind{s.bind()}, Rows: []engine.Row{s.row(&r.info, 100)}}
	first, err := r.submit(prefill)
	if err != nil {
		return err
	}
	used := kv.CeilPages(len(q.prompt), r.info.PageTokens)
	memory, free, err := r.hostPages(used)
	if err != nil {
		return err
	}
	defer free()
	saved, err := r.begin(kv.TierDevice, kv.TierHost, s.pages[:used], memory)
	if err != nil {
		return err
	}
	o := r.sequence(1, other.params, other.prompt, steps)
	copy(o.pages, s.pages)
	over := &engine.Batch{After: []engine.MoveID{saved}, Binds: []engine.SlotBind{o.bind()}, Rows: []engine.Row{o.row(&r.info, 100)}}
	second, err := r.submit(over)
	if err != nil {
		return err
	}
	if err := r.await(saved, nil); err != nil {
		return fmt.Errorf("a move to the host: %w", err)
	}
	for i, x := range []struct {
		s *sequence
		b *engine.Batch
		t engine.Ticket
	}{{s, prefill, first}, {o, over, second}} {
		res, err := wait(x.t)
		if err == nil {
			err = x.s.take(x.b, res, 0)
		}
		if err != nil {
			return fmt.Errorf("batch %d: %w", i+1, err)
		}
	}
	for len(o.out) < steps {
		if err := r.step(1, nil, o); err != nil {
			return err
		}
	}
	if err := r.restore(s, used, steps, memory); err != nil {
		return err
	}
	return errors.Join(equal("restored request", s.out, q.want), equal("the one on its old pages", o.out, other.want), r.badMoves(memory))
}

// restore moves s back, to other pages in another order, and continues it.
func (r *rig) restore(s *sequence, used, steps int, memory [][]byte) error {
	s.pages = r.pages(len(s.prompt) + steps)
	in, from := slices.Clone(s.pages[:used]), slices.Clone(memory)
	slices.Reverse(in)
	slices.Reverse(from)
	back, err := r.begin(kv.TierHost, kv.TierDevice, in, from)
	if err != nil {
		return err
	}
	b := &engine.Batch{After: []engine.MoveID{back}, Rows: []engine.Row{s.row(&r.info, 100)}}
	res, err := r.run(b)
	if err == nil {
		err = s.take(b, res, 0)
	}
	for err == nil && len(s.out) < steps {
		err = r.step(1, nil, s)
	}
	if err == nil {
		err = r.await(back, nil)
	}
	return err
}

// badMoves submits moves that must be refused, and returns an error if one is not.
func (r *rig) badMoves(memory [][]byte) error {
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
			return fmt.Errorf("a move with %s: %v, want ErrInvalid", c.name, err)
		}
	}
	return nil
}

// moveControls are movers that checkMoves must fail.
func moveControls() []control {
	return []control{
		{"moves", "drops moves from the host", with(broken{move: func(b *broken, m *engine.Move, memory [][]byte) error {
			if m.To == kv.TierDevice {
				m, memory = &engine.Move{ID: m.ID, From: m.From, To: m.To}, nil
			}
			return b.mover.Move(m, memory)
		}})},
		{"moves", "mixes up the pages of moves to the host", with(broken{move: func(b *broken, m *engine.Move, memory [][]byte) error {
			if n := len(memory); n > 1 && m.From == kv.TierDevice {
				memory[0], memory[n-1] = memory[n-1], memory[0]
			}
			return b.mover.Move(m, memory)
		}})},
		{"moves", "begins moves that can't be", with(broken{move: func(b *broken, m *engine.Move, memory [][]byte) error {
			if err := b.mover.Move(m, memory); !errors.Is(err, engine.ErrInvalid) {
				return err
			}
			return nil
		}})},
	}
}
