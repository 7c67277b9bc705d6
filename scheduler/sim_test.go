package scheduler

import (
	"fmt"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// sim stands in for a model: every KV slot carries its token, its position and a
// hash over the whole prefix as read through the page table, and the sampled
// token is a function of that hash. A wrong page, an early reuse, a missing copy
// or a stale deferred token changes the output or trips a check.
type sim struct {
	info  engine.Info
	slots []kvSlot
	last  []kv.Token // by sequence slot
	dead  []bool     // by sequence slot: a row failed since the bind; what comes after it is void
	seq   uint64
	given int // tokens run that the batch gave
	ran   int // tokens run
	fail  func(seq uint64, row int) error

	// Planted faults, to see them caught.
	dropCopies, staleDeferred bool
}

type kvSlot struct {
	token kv.Token
	pos   int32
	hash  uint64
}

func newSim(pageTokens, pages, slots, positions int) *sim {
	s := &sim{
		info: engine.Info{
			Name: "sim", Vocab: 97, MaxPositions: positions, PageTokens: pageTokens, NumPages: pages,
			MaxSlots: slots, MaxRows: slots, MaxTokens: 512, MaxInflight: 2, Deterministic: true,
		},
		slots: make([]kvSlot, pages*pageTokens),
		last:  make([]kv.Token, slots),
		dead:  make([]bool, slots),
	}
	for i := range s.slots {
		s.slots[i] = kvSlot{pos: -1}
	}
	return s
}

func extend(hash uint64, token kv.Token) uint64 {
	hash = (hash ^ uint64(token+1)) * 0x9e3779b97f4a7c15
	return hash ^ hash>>29
}

func (s *sim) sample(hash uint64, index int) kv.Token {
	return kv.Token(extend(hash, kv.Token(index+1000)) >> 33 % uint64(s.info.Vocab))
}

// expect is what a request must get, computed without pages.
func (s *sim) expect(prompt []kv.Token, n int) []kv.Token {
	var hash uint64
	for _, t := range prompt {
		hash = extend(hash, t)
	}
	out := make([]kv.Token, n)
	for i := range out {
		out[i] = s.sample(hash, i)
		hash = extend(hash, out[i])
	}
	return out
}

func (s *sim) run(b *engine.Batch) (*engine.Result, error) {
	if err := b.Validate(&s.info, s.seq); err != nil {
		return nil, err
	}
	s.seq = b.Seq
	for _, bind := range b.Binds {
		s.last[bind.Slot], s.dead[bind.Slot] = ^kv.Token(0), false
	}
	for _, c := range b.Copies {
		if s.dropCopies {
			break
		}
		p := s.info.PageTokens
		copy(s.slots[int(c.Dst)*p:int(c.Dst)*p+int(c.Tokens)], s.slots[int(c.Src)*p:int(c.Src)*p+int(c.Tokens)])
	}
	res := &engine.Result{Seq: b.Seq}
	for i := range b.Rows {
		if s.dead[b.Rows[i].Slot] { // of a sequence that ended while this was on its way
			s.spoil(&b.Rows[i])
			res.Out = append(res.Out, engine.RowOut{Row: i})
			continue
		}
		out, err := s.runRow(i, &b.Rows[i])
		if err != nil {
			return nil, err
		}
		if s.fail != nil {
			if err := s.fail(b.Seq, i); err != nil {
				s.spoil(&b.Rows[i])
				res.Out = append(res.Out, engine.RowOut{Row: i, Err: err})
				continue
			}
		}
		if b.Rows[i].Sample {
			res.Out = append(res.Out, out)
		}
	}
	return res, nil
}

// spoil makes what a failed row wrote a trap for whoever reads it.
func (s *sim) spoil(r *engine.Row) {
	for pos := int(r.Start); pos < int(r.Start)+r.Len(); pos++ {
		p := s.info.PageTokens
		s.slots[int(r.Pages[pos/p])*p+pos%p] = kvSlot{pos: -7}
	}
	s.last[r.Slot], s.dead[r.Slot] = ^kv.Token(0), true
}

func (s *sim) runRow(i int, r *engine.Row) (engine.RowOut, error) {
	at := func(pos int) *kvSlot {
		p := s.info.PageTokens
		return &s.slots[int(r.Pages[pos/p])*p+pos%p]
	}
	var hash uint64
	for pos := range int(r.Start) {
		slot := at(pos)
		hash = extend(hash, slot.token)
		if slot.pos != int32(pos) || slot.hash != hash {
			return engine.RowOut{}, fmt.Errorf("row %d reads position %d of another prefix on page %d (slot has position %d)",
				i, pos, r.Pages[pos/s.info.PageTokens], slot.pos)
		}
	}
	tokens := r.Tokens
	if r.Deferred {
		tokens = s.last[r.Slot : r.Slot+1]
	} else {
		s.given += len(tokens)
	}
	s.ran += len(tokens)
	for k, t := range tokens {
		hash = extend(hash, t)
		*at(int(r.Start) + k) = kvSlot{t, r.Start + int32(k), hash}
	}
	if !r.Sample {
		return engine.RowOut{}, nil
	}
	token := s.sample(hash, int(r.SampleIndex))
	if !s.staleDeferred || r.SampleIndex == 0 {
		s.last[r.Slot] = token
	}
	return engine.RowOut{Row: i, Token: token}, nil
}
