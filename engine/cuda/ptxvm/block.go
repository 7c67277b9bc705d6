package ptxvm

// specials has the special registers that kernels read. A function returns the value in a lane; at is
// the block's place in the grid.
var specials = map[string]func(w *warp, at Dim, lane int) uint64{
	"%tid.x":    func(w *warp, _ Dim, lane int) uint64 { return uint64((w.first + lane) % w.b.size.X) },
	"%ctaid.x":  func(_ *warp, at Dim, _ int) uint64 { return uint64(at.X) },
	"%ctaid.y":  func(_ *warp, at Dim, _ int) uint64 { return uint64(at.Y) },
	"%ntid.x":   func(w *warp, _ Dim, _ int) uint64 { return uint64(w.b.size.X) },
	"%nctaid.x": func(w *warp, _ Dim, _ int) uint64 { return uint64(w.b.grid.X) },
	"%nctaid.y": func(w *warp, _ Dim, _ int) uint64 { return uint64(w.b.grid.Y) },
}

// block is the state of the running block. It is reused for the next block.
type block struct {
	m      *Machine
	k      *Kernel
	grid   Dim
	size   Dim
	index  int // of the block in the grid
	op     opID
	params []byte
	warps  []*warp
	shared sharedMemory
	at     int32 // the running instruction
	now    *warp // the running warp

	stats   *KernelStats
	budget  int64 // instructions left
	ordered opID  // an operation that is known to be ordered before op
}

// blockOf returns the block for a launch. If the kernel's last launch had the same number of
// threads and the same shared memory, it reuses that launch's block, whose registers, except
// constants, and shared memory hold stale values.
func (m *Machine) blockOf(k *Kernel, l *Launch, op opID) *block {
	b, shared := m.blocks[k], roundUp(k.SharedBytes, 16)+l.SharedBytes
	if b == nil || b.size != l.Block.size() || len(b.shared.data) != shared {
		b = newBlock(m, k, l.Block.size(), shared)
		m.blocks[k] = b
	}
	b.grid, b.op, b.params, b.budget, b.ordered = l.Grid.size(), op, l.Args, m.config.MaxInstructions, 0
	for _, w := range b.warps {
		w.last = nil // the allocation may be freed
	}
	return b
}

func newBlock(m *Machine, k *Kernel, size Dim, shared int) *block {
	b := &block{m: m, k: k, size: size, stats: m.stats(k.Name)}
	b.shared.init(shared)
	for first := 0; first < size.count(); first += lanes {
		w := &warp{b: b, first: first, r: make([][lanes]uint64, k.regs), p: make([]uint32, k.preds)}
		for _, c := range k.consts {
			for l := range w.r[c.reg] {
				w.r[c.reg][l] = c.value
			}
		}
		b.warps = append(b.warps, w)
	}
	return b
}

// count adds n to the number of executed thread instructions. It panics with a fault if the launch
// exceeds its budget.
func (b *block) count(n int) {
	b.stats.Instructions += int64(n)
	b.budget -= int64(n)
	if b.budget < 0 {
		fail(Endless, 0, "after %d instructions", b.m.config.MaxInstructions)
	}
}

// run runs block i of the grid to its end.
func (b *block) run(i int) {
	b.index = i
	b.shared.clear()
	place := b.grid.at(i)
	for _, w := range b.warps {
		for _, s := range b.k.special {
			for l := range w.r[s.reg] {
				w.r[s.reg][l] = s.value(w, place, l)
			}
		}
		w.start(b.size.count())
	}
	for b.round() {
		b.shared.epoch++
	}
}

// round runs each warp to its next barrier or its end, and reports whether any warp waits. All
// waiting warps must be at the same barrier.
func (b *block) round() bool {
	at, waiting := int32(-1), (*warp)(nil)
	ended := -1
	for i, w := range b.warps {
		b.now = w
		if !w.run() {
			ended = i
			continue
		}
		pc := w.groups[0].pc
		if waiting != nil && pc != at {
			fail(Divergence, 0, "warp %d waits at line %d, warp %d at line %d", waiting.first/lanes, b.k.code[at-1].line, w.first/lanes, b.k.code[pc-1].line)
		}
		at, waiting = pc, w
	}
	if waiting != nil && ended >= 0 {
		b.now, b.at = waiting, at-1
		fail(Divergence, 0, "warp %d has ended without it", ended)
	}
	return waiting != nil
}

// fault converts s, the panic value of an instruction, to a Fault with the block's place in the
// code.
func (b *block) fault(s *stop) *Fault {
	in := &b.k.code[b.at]
	return &Fault{
		Kind: s.kind, Kernel: b.k.Name, Block: b.grid.at(b.index), Thread: b.size.at(b.now.first + s.lane),
		File: b.k.files[int(in.file)], Line: int(in.line), Text: in.text, Detail: s.detail,
	}
}
