package server

import (
	"slices"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

// script is the output of all requests: its tokens in their order, the last one again and again.
type script struct{ atomic.Pointer[[]kv.Token] }

// scripted is a simulated device that samples what a script says. It has half as many rows and masks
// as the device. The other masks allow one token each.
type scripted struct {
	*sim.Backend
	script *script
}

func (s *scripted) Info() engine.Info {
	info := s.Backend.Info()
	info.MaxRows /= 2
	info.MaxMasks /= 2
	return info
}

func (s *scripted) Submit(b *engine.Batch) (engine.Ticket, error) {
	own, tokens := s.Info(), *s.script.Load()
	said := *b
	said.Masks, said.Rows = slices.Clone(b.Masks), slices.Clone(b.Rows)
	for i := range said.Rows {
		r := &said.Rows[i]
		if !r.Sample {
			continue
		}
		bits := make([]uint64, (own.Vocab+63)/64)
		token := tokens[min(int(r.SampleIndex), len(tokens)-1)]
		bits[token/64] |= 1 << (token % 64)
		r.Mask = engine.MaskID(own.MaxMasks + 1 + i)
		said.Masks = append(said.Masks, engine.MaskSet{ID: r.Mask, Bits: bits})
	}
	return s.Backend.Submit(&said)
}
