package enginetest

import (
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// control is a deliberately broken backend that check must fail. name completes "a backend that
// …".
type control struct {
	check, name string
	wrap        func(engine.Backend) engine.Backend
}

// controls returns all controls; every check has at least one.
func controls(info *engine.Info) []control {
	return slices.Concat(bitControls(), tableControls(), maskControls(), draftControls(info), flowControls(), ownershipControls(), moveControls(), samplingControls(), hiddenControls(), refuseControls(), answerControls(info))
}

// with returns a function that wraps a sound backend with the hooks of b.
func with(b broken) func(engine.Backend) engine.Backend {
	return func(sound engine.Backend) engine.Backend {
		c := b
		c.Backend, c.slots, c.masks = sound, map[engine.Slot]bool{}, map[engine.MaskID]engine.MaskSet{}
		return &c
	}
}

// eachRow returns a broken backend that calls change for each row of a batch before it submits the
// batch.
func eachRow(change func(b *broken, r *engine.Row, i int, x *engine.Batch)) broken {
	return broken{batch: func(b *broken, x *engine.Batch) {
		for i := range x.Rows {
			change(b, &x.Rows[i], i, x)
		}
	}}
}

// eachOut returns a function that wraps a sound backend, and calls change for each entry of a result.
func eachOut(change func(o *engine.RowOut)) func(engine.Backend) engine.Backend {
	return with(broken{result: func(res *engine.Result) {
		for i := range res.Out {
			change(&res.Out[i])
		}
	}})
}

// eachBind returns a broken backend that calls change for each bind of a batch before it submits
// the batch.
func eachBind(change func(s *engine.SlotBind)) broken {
	return broken{batch: func(_ *broken, x *engine.Batch) {
		for i := range x.Binds {
			change(&x.Binds[i])
		}
	}}
}

// other replaces the last token of row r: the smallest change that affects the row's logits.
func other(r *engine.Row) {
	if n := len(r.Tokens); n > 0 {
		r.Tokens = slices.Clone(r.Tokens)
		r.Tokens[n-1] ^= 1
	}
}

func bitControls() []control {
	hidden := eachRow(func(b *broken, r *engine.Row, i int, x *engine.Batch) {
		for j := range i {
			if len(r.Pages) > 0 && len(x.Rows[j].Pages) > 0 && r.Pages[0] == x.Rows[j].Pages[0] {
				r.Pages = slices.Clone(r.Pages)
				r.Pages[0] = kv.PageID(b.Backend.Info().NumPages - 1)
			}
		}
	})
	early := eachRow(func(b *broken, r *engine.Row, _ int, _ *engine.Batch) {
		n := b.Backend.Info().PageTokens
		if end := int(r.Start) + r.Len(); kv.CeilPages(end+1, n) == kv.CeilPages(end, n) {
			r.Start++ // attends to the slot that should have been written
		}
	})
	return []control{
		{"batch-mix", "computes otherwise with several rows", with(eachRow(func(_ *broken, r *engine.Row, _ int, x *engine.Batch) {
			if len(x.Rows) > 1 && r.Len() == 1 {
				other(r)
			}
		}))},
		{"batch-mix", "mixes up the pages of rows", with(broken{batch: func(_ *broken, x *engine.Batch) {
			if n := len(x.Rows); n > 1 && len(x.Rows[0].Pages) == len(x.Rows[1].Pages) {
				x.Rows[0].Pages, x.Rows[1].Pages = x.Rows[1].Pages, x.Rows[0].Pages
			}
		}})},
		{"batch-mix", "runs rows in another order", with(broken{batch: func(_ *broken, x *engine.Batch) { slices.Reverse(x.Rows) }})},
		{"chunking", "starts chunks one position early", with(eachRow(func(b *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if n := b.Backend.Info().PageTokens; r.Start > 0 {
				r.Start--
				r.Pages = r.Pages[:kv.CeilPages(int(r.Start)+r.Len(), n)]
			}
		}))},
		{"page-size", "computes otherwise on pages of 2", with(eachRow(func(b *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if b.Backend.Info().PageTokens == 2 {
				other(r)
			}
		}))},
		{"page-permutation", "takes pages by ascending id", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			r.Pages = slices.Clone(r.Pages)
			slices.Sort(r.Pages)
		}))},
		{"copy-on-write", "drops copies", with(broken{batch: func(_ *broken, x *engine.Batch) { x.Copies = nil }})},
		{"copy-on-write", "copies a slot too few", with(broken{batch: func(_ *broken, x *engine.Batch) {
			for i := range x.Copies {
				x.Copies[i].Tokens = max(1, x.Copies[i].Tokens-1)
			}
		}})},
		{"copy-on-write", "writes to the source of a copy", with(broken{batch: func(_ *broken, x *engine.Batch) {
			for _, c := range x.Copies {
				for j := range x.Rows {
					p := slices.Clone(x.Rows[j].Pages)
					for k := range p {
						if p[k] == c.Dst {
							p[k] = c.Src
						}
					}
					x.Rows[j].Pages = p
				}
			}
		}})},
		{"in-batch-sharing", "hides what earlier rows wrote", with(hidden)},
		{"stale-poison", "reads a slot past the end", with(early)},
	}
}

func flowControls() []control {
	loseBinds := broken{batch: func(b *broken, x *engine.Batch) {
		x.Binds = slices.DeleteFunc(x.Binds, func(s engine.SlotBind) bool {
			known := b.slots[s.Slot]
			b.slots[s.Slot] = true
			return known
		})
	}}
	count := func(change func(s *engine.StepStats)) func(engine.Backend) engine.Backend {
		return with(broken{result: func(res *engine.Result) { change(&res.Stats) }})
	}
	return []control{
		{"deferred", "runs deferred rows on a stale token", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if r.Deferred {
				r.Deferred, r.Tokens = false, []kv.Token{0}
			}
		}))},
		{"deferred", "takes the token of the slot beside", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if r.Deferred {
				r.Slot ^= 1
			}
		}))},
		{"preempt-resume", "loses the binds of known slots", with(loseBinds)},
		{"preempt-resume", "forgets the sample index", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if r.Len() > 1 {
				r.SampleIndex = 0
			}
		}))},
		{"slot-reuse", "loses the binds of known slots", with(loseBinds)},
		{"row-error", "hides the errors of rows", with(broken{result: func(res *engine.Result) {
			for i := range res.Out {
				res.Out[i].Err = nil
			}
		}})},
		{"row-error", "fails all rows with one", with(broken{result: func(res *engine.Result) {
			for i := range res.Out {
				if e := res.Out[i].Err; e != nil {
					for j := range res.Out {
						res.Out[j].Err = e
					}
				}
			}
		}})},
		{"stats", "counts a token too many", count(func(s *engine.StepStats) { s.GivenTokens++ })},
		{"stats", "counts deferred tokens as given", count(func(s *engine.StepStats) {
			s.GivenTokens, s.DeferredTokens = s.GivenTokens+s.DeferredTokens, 0
		})},
		{"stats", "forgets what it read", count(func(s *engine.StepStats) { s.KVTokensRead = 0 })},
		{"stats", "forgets samples", count(func(s *engine.StepStats) { s.Samples = 0 })},
		{"stats", "forgets copies", count(func(s *engine.StepStats) { s.CopiedPages = 0 })},
	}
}

func samplingControls() []control {
	return []control{
		{"seed", "ignores the seed", with(eachBind(func(s *engine.SlotBind) { s.Sampling.Seed = 0 }))},
		{"seed", "draws by the slot", with(eachBind(func(s *engine.SlotBind) { s.Sampling.Seed += uint64(s.Slot) }))},
		{"seed", "ignores the sample index", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) { r.SampleIndex = 0 }))},
		{"seed", "draws by the batch", with(eachRow(func(_ *broken, r *engine.Row, _ int, x *engine.Batch) {
			r.SampleIndex += int32(len(x.Rows)) - 1
		}))},
		{"penalties", "loses the output at a bind", with(eachBind(func(s *engine.SlotBind) { s.Output = nil }))},
		{"penalties", "loses the prompt at a bind", with(eachBind(func(s *engine.SlotBind) { s.Prompt = nil }))},
		{"penalties", "ignores penalties", with(eachBind(func(s *engine.SlotBind) {
			s.Sampling.RepetitionPenalty, s.Sampling.PresencePenalty, s.Sampling.FrequencyPenalty = 0, 0, 0
		}))},
		{"mask", "ignores masks", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) { r.Mask = 0 }))},
		{"mask", "hides that nothing is allowed", eachOut(func(o *engine.RowOut) { o.Err = nil })},
		{"mask", "takes the digest after the mask", with(broken{result: func(res *engine.Result) {
			for i := range res.Out {
				res.Out[i].Digest += uint64(i)
			}
		}})},
		{"bias", "ignores biases", with(eachBind(func(s *engine.SlotBind) { s.Sampling.Bias = nil }))},
		{"bias", "ignores the bias of -Inf", with(eachBind(func(s *engine.SlotBind) {
			if b := s.Sampling.Bias; len(b) > 0 && math.IsInf(float64(b[0].Bias), -1) {
				s.Sampling.Bias = nil
			}
		}))},
		{"logprobs", "reports the next best token's", eachOut(func(o *engine.RowOut) {
			if len(o.Top) > 1 {
				o.Logprob = o.Top[1].Logprob - 1
			}
		})},
		{"logprobs", "lists too few", with(eachBind(func(s *engine.SlotBind) { s.Sampling.TopLogprobs = 2 }))},
		{"logprobs", "lists the worst first", eachOut(func(o *engine.RowOut) { slices.Reverse(o.Top) })},
		{"prompt-logprobs", "forgets the first of a chunk", eachOut(func(o *engine.RowOut) {
			if len(o.Prompt) > 0 {
				o.Prompt = o.Prompt[1:]
			}
		})},
		{"prompt-logprobs", "lists what is most probable a place later", eachOut(func(o *engine.RowOut) {
			if n := len(o.PromptTop); n > 1 {
				o.PromptTop = append(slices.Clone(o.PromptTop[1:]), o.PromptTop[n-1])
			}
		})},
		{"prompt-logprobs", "lists another token in a place of the prompt", eachOut(func(o *engine.RowOut) {
			for i, top := range o.PromptTop {
				if n := len(top); n > 0 {
					o.PromptTop[i] = slices.Clone(top)
					o.PromptTop[i][n-1].Token ^= 1
				}
			}
		})},
		{"prompt-logprobs", "lists too few in a prompt", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			r.PromptTop = min(r.PromptTop, 2)
		}))},
		{"prompt-logprobs", "can't see the chunk before", with(broken{batch: func(_ *broken, x *engine.Batch) {
			for _, r := range x.Rows {
				x.Binds = append(x.Binds, engine.SlotBind{Slot: r.Slot})
			}
		}})},
	}
}

func refuseControls() []control {
	accept := func(b *broken, err error) (engine.Ticket, error) { return newEnded(), nil }
	return []control{
		{"validation", "accepts everything", with(broken{refused: accept})},
		{"validation", "runs a batch without tokens", with(broken{batch: func(b *broken, x *engine.Batch) {
			if len(x.Rows) == 1 && x.Rows[0].Tokens == nil && !x.Rows[0].Deferred {
				x.Rows[0].Tokens, x.Rows[0].Start, x.Rows[0].Pages = []kv.Token{1}, 0, x.Rows[0].Pages[:1]
			}
		}})},
		{"busy", "takes fewer batches than it says", with(broken{info: func(i *engine.Info) { i.MaxInflight++ }})},
		{"busy", "takes more batches than it says", with(broken{info: func(i *engine.Info) { i.MaxInflight-- }})},
		{"close", "leaves tickets pending", with(broken{close: func(*broken) error { return nil }})},
		{"close", "accepts batches after Close", with(broken{refused: accept})},
	}
}
