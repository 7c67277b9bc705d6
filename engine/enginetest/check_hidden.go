package enginetest

import (
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

func offersHidden(info *engine.Info) bool { return info.HiddenSize > 0 }

// hiddenOf runs tokens in slot in chunks of at most n and returns the hidden state that the last chunk
// gives. The first cached tokens, for which pages has the KV already, are not run.
func (r *rig) hiddenOf(kind engine.Hidden, slot engine.Slot, tokens []kv.Token, pages []kv.PageID, cached, n int, others ...*sequence) []float32 {
	binds := []engine.SlotBind{{Slot: slot}}
	for _, o := range others {
		binds = append(binds, o.bind())
	}
	for at := cached; ; {
		end := min(at+n, len(tokens))
		b := &engine.Batch{Binds: binds}
		for _, o := range others {
			b.Rows = append(b.Rows, o.row(&r.info, 1))
		}
		b.Rows = append(b.Rows, engine.Row{Slot: slot, Start: int32(at), Tokens: tokens[at:end], Pages: pages[:kv.CeilPages(end, r.info.PageTokens)], Hidden: kind})
		res := r.run(b)
		for i, o := range others {
			o.take(b, res, i)
		}
		last := len(b.Rows) - 1
		i := slices.IndexFunc(res.Out, func(o engine.RowOut) bool { return o.Row == last })
		if i < 0 {
			failf("a row that asks for a hidden state has no answer")
		}
		ok(res.Out[i].Err)
		r.checkHidden(res.Out[i].Hidden)
		if end == len(tokens) {
			return res.Out[i].Hidden
		}
		at, binds = end, nil
	}
}

// checkHidden checks the length of a hidden state, and that its values are finite.
func (r *rig) checkHidden(state []float32) {
	if len(state) != r.info.HiddenSize {
		failf("a hidden state of %d values, want %d", len(state), r.info.HiddenSize)
	}
	for i, v := range state {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			failf("value %d of a hidden state is %v", i, v)
		}
	}
}

// checkEmbedding compares hidden states at the last token, and sums of states, for several chunks, pages
// and neighbours, on a cached prefix and with a sample in the same row. The sum is compared with the
// states at single positions.
func checkEmbedding(h *harness) {
	r := h.open(usual(16))
	prompt := r.tokens(1, 45)
	pages := r.pages(len(prompt))
	last := r.hiddenOf(engine.HiddenLast, 0, prompt, pages, 0, 100)
	sum := r.hiddenOf(engine.HiddenSum, 0, prompt, pages, 0, 100)
	for i, kind := range []engine.Hidden{engine.HiddenLast, engine.HiddenSum} {
		want := [][]float32{last, sum}[i]
		for _, chunk := range []int{1, 7, 44} {
			r.shuffle()
			other := r.sequence(2, engine.SamplingParams{}, r.tokens(9, 5), 60)
			own := r.pages(len(prompt))
			got := r.hiddenOf(kind, 1, prompt, own, 0, chunk, other)
			if !slices.Equal(got, want) {
				failf("hidden state %d in chunks of %d, among others: %v, want %v", kind, chunk, got[:4], want[:4])
			}
			r.free = append(append(r.free, own...), other.pages...)
		}
	}
	checkCachedHidden(r, prompt, pages, last)
	checkSum(r, prompt, sum)
	if n := len(prompt) - 1; slices.Equal(r.hiddenOf(engine.HiddenLast, 3, prompt[:n], r.pages(n), 0, n), last) {
		failf("the hidden states after %d and %d tokens are equal", n, n+1)
	}
}

// checkCachedHidden checks that state, which is that of prompt, has the same bits if only the end of the
// prompt runs, and if the row samples too.
func checkCachedHidden(r *rig, prompt []kv.Token, pages []kv.PageID, state []float32) {
	for _, cached := range []int{32, len(prompt) - 1} {
		if got := r.hiddenOf(engine.HiddenLast, 3, prompt, pages, cached, 100); !slices.Equal(got, state) {
			failf("hidden state after %d cached tokens: %v, want %v", cached, got[:4], state[:4])
		}
	}
	s := r.sequence(4, engine.SamplingParams{}, prompt, 1)
	b := &engine.Batch{Binds: []engine.SlotBind{s.bind()}, Rows: []engine.Row{s.row(&r.info, 100)}}
	b.Rows[0].Hidden = engine.HiddenLast
	o := r.answer(b)
	if !slices.Equal(o.Hidden, state) {
		failf("the hidden state of a row that samples is another one")
	}
	s.take(b, &engine.Result{Out: []engine.RowOut{*o}}, 0)
	equal("the sample of a row with a hidden state", s.out, r.plain(prompt))
	r.free = append(r.free, s.pages...)
}

// plain returns the sample after a prompt.
func (r *rig) plain(prompt []kv.Token) []sample {
	s := r.sequence(5, engine.SamplingParams{}, prompt, 1)
	r.finish(s, 100, 1)
	r.free = append(r.free, s.pages...)
	return s.out
}

// checkSum compares sum, which is that of prompt, with the sum of the states at its positions, within
// what rounding can make of it. A sum that leaves out positions is refused.
func checkSum(r *rig, prompt []kv.Token, sum []float32) {
	want, size := make([]float64, len(sum)), make([]float64, len(sum))
	pages := r.pages(len(prompt))
	for at := range prompt {
		b := &engine.Batch{Rows: []engine.Row{{Slot: 6, Start: int32(at), Tokens: prompt[at : at+1], Pages: pages[:kv.CeilPages(at+1, r.info.PageTokens)], Hidden: engine.HiddenLast}}}
		state := r.answer(b).Hidden
		r.checkHidden(state)
		for i, v := range state {
			want[i] += float64(v)
			size[i] += math.Abs(float64(v))
		}
	}
	for i, v := range sum {
		if !(math.Abs(float64(v)-want[i]) <= 1e-5*size[i]) {
			failf("value %d of the sum over %d positions is %v, the states have %v", i, len(prompt), v, want[i])
		}
	}
	r.free = append(r.free, pages...)
}

// badHidden returns batches with hidden states that must be refused.
func badHidden(info *engine.Info) []badBatch {
	if !offersHidden(info) {
		return []badBatch{{"a hidden state", badRow(func(x *engine.Row) { x.Hidden = engine.HiddenLast })}}
	}
	all := []badBatch{
		{"a hidden state of a kind that there is not", badRow(func(x *engine.Row) { x.Hidden = engine.HiddenSum + 1 })},
		{"a sum of hidden states that leaves out positions", badRow(func(x *engine.Row) { x.Hidden = engine.HiddenSum })},
	}
	if takesDrafts(info) {
		all = append(all, badBatch{"drafts and a hidden state", badRow(func(x *engine.Row) { x.Hidden, x.Drafts = engine.HiddenLast, []kv.Token{1} })})
	}
	return all
}

// hiddenControls are backends that give other hidden states than they should.
func hiddenControls() []control {
	return []control{
		{"embedding", "gives the state at the last position for the sum", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			r.Hidden = min(r.Hidden, engine.HiddenLast)
		}))},
		{"embedding", "gives the sum for the state at the last position", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if r.Hidden == engine.HiddenLast && r.Start == 0 {
				r.Hidden = engine.HiddenSum
			}
		}))},
		{"embedding", "computes otherwise after cached tokens", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if r.Hidden == engine.HiddenLast && r.Start > 0 {
				other(r)
			}
		}))},
		{"embedding", "normalises states", eachOut(func(o *engine.RowOut) {
			sum := 0.0
			for _, v := range o.Hidden {
				sum += float64(v) * float64(v)
			}
			o.Hidden = slices.Clone(o.Hidden)
			for i := range o.Hidden {
				o.Hidden[i] = float32(float64(o.Hidden[i]) / math.Sqrt(sum))
			}
		})},
		{"embedding", "sums each chunk by itself", func(sound engine.Backend) engine.Backend { return &chunkSums{Backend: sound} }},
	}
}

// chunkSums forgets the sum of the chunks before: it gives the difference of two sums.
type chunkSums struct {
	engine.Backend
	before []float32
}

// Submit implements engine.Backend.
func (c *chunkSums) Submit(x *engine.Batch) (engine.Ticket, error) {
	t, err := c.Backend.Submit(x)
	if err != nil {
		return t, err
	}
	<-t.Done()
	return changed{t, func(res *engine.Result) {
		for i := range res.Out {
			r, o := &x.Rows[res.Out[i].Row], &res.Out[i]
			if r.Hidden != engine.HiddenSum {
				continue
			}
			whole := o.Hidden
			if r.Start > 0 {
				o.Hidden = slices.Clone(whole)
				for j, v := range c.before {
					o.Hidden[j] -= v
				}
			}
			c.before = whole
		}
	}}, nil
}

// hiddenFaults are faults of hidden states.
func hiddenFaults() []Fault {
	return []Fault{
		inRow("leaves out the hidden state", NeedsHidden, func(o *engine.RowOut) { o.Hidden = nil }),
		inRow("gives a hidden state that is too short", NeedsHidden, func(o *engine.RowOut) { o.Hidden = o.Hidden[1:] }),
		inRow("gives NaN in a hidden state", NeedsHidden, func(o *engine.RowOut) {
			o.Hidden = slices.Clone(o.Hidden)
			o.Hidden[len(o.Hidden)-1] = float32(math.NaN())
		}),
	}
}
