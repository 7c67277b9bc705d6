package enginetest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
)

// broken is a backend that breaks one rule: hooks change the inputs or the results of a sound
// backend. Hooks get copies; nil hooks change nothing.
type broken struct {
	engine.Backend
	engine.Mover // the sound backend's, or nil

	info    func(info *engine.Info)
	batch   func(b *broken, x *engine.Batch)
	move    func(b *broken, m *engine.Move, memory [][]byte) error // called in place of the sound backend's Move
	result  func(res *engine.Result)
	refused func(b *broken, err error) (engine.Ticket, error) // called when Submit failed
	close   func(b *broken) error

	slots map[engine.Slot]bool             // all slots ever bound
	masks map[engine.MaskID]engine.MaskSet // masks set by earlier batches
}

func (b *broken) Info() engine.Info {
	i := b.Backend.Info()
	if b.info != nil {
		b.info(&i)
	}
	return i
}

func (b *broken) Submit(x *engine.Batch) (engine.Ticket, error) {
	y := *x
	y.Binds, y.Copies, y.Rows = slices.Clone(x.Binds), slices.Clone(x.Copies), slices.Clone(x.Rows)
	y.After, y.Swaps = slices.Clone(x.After), slices.Clone(x.Swaps)
	y.Drops, y.Masks = slices.Clone(x.Drops), slices.Clone(x.Masks)
	if b.batch != nil {
		b.batch(b, &y)
	}
	t, err := b.Backend.Submit(&y)
	if err != nil && b.refused != nil {
		return b.refused(b, err)
	}
	if err != nil || b.result == nil {
		return t, err
	}
	return changed{t, b.result}, nil
}

// Move implements engine.Mover, if the sound backend does.
func (b *broken) Move(m *engine.Move, memory [][]byte) error {
	if b.move != nil {
		return b.move(b, m, slices.Clone(memory))
	}
	return b.Mover.Move(m, memory)
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close(b)
	}
	return b.Backend.Close()
}

// changed is a ticket whose result a control spoils.
type changed struct {
	engine.Ticket
	change func(res *engine.Result)
}

func (c changed) Result() (*engine.Result, error) {
	res, err := c.Ticket.Result()
	if err != nil {
		return nil, err
	}
	r := *res
	r.Out = slices.Clone(res.Out)
	c.change(&r)
	return &r, nil
}

// ended is a completed ticket with an empty result.
type ended struct{ done chan struct{} }

func newEnded() ended {
	t := ended{make(chan struct{})}
	close(t.done)
	return t
}

func (e ended) Done() <-chan struct{}           { return e.done }
func (e ended) Result() (*engine.Result, error) { return &engine.Result{}, nil }
