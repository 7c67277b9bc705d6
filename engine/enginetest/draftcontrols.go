package enginetest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// draftControls are backends that verify drafts wrongly.
func draftControls(info *engine.Info) []control {
	all := []control{
		{"drafts", "accepts a draft unverified", inPlaceOf(acceptUnverified)},
		{"drafts", "samples position 2 with the random numbers of position 1", inPlaceOf(repeatNumbers)},
		{"drafts", "leaves the KV of a refused draft to later rows", inPlaceOf(keepRefused)},
		{"drafts", "continues after the first sample of a row with drafts", inPlaceOf(keepFirst)},
		{"drafts", "counts no drafts", with(broken{result: func(res *engine.Result) { res.Stats.Drafted, res.Stats.Confirmed = 0, 0 }})},
		{"drafts", "loses drafts", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) { r.Drafts, r.DraftMasks = nil, nil }))},
		{"drafts", "forgets the mask of a later position", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if len(r.DraftMasks) > 1 {
				r.DraftMasks = slices.Clone(r.DraftMasks)
				r.DraftMasks[1] = 0
			}
		}))},
		{"draft-errors", "fails a row for a position that no output reaches", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) {
			if len(r.DraftMasks) > 0 {
				r.Mask = r.DraftMasks[0]
			}
		}))},
		{"draft-errors", "ignores masks of drafts", with(eachRow(func(_ *broken, r *engine.Row, _ int, _ *engine.Batch) { r.DraftMasks = nil }))},
		{"draft-errors", "gives what was confirmed before an error", eachOut(func(o *engine.RowOut) {
			if o.Err != nil {
				o.Confirmed = 2
			}
		})},
	}
	if info.Capabilities.Penalties {
		all = append(all, control{"drafts", "counts a refused draft in the penalties", inPlaceOf(countRefused)})
	}
	if info.Capabilities.Digests {
		all = append(all, control{"drafts", "mixes up the digests of drafts", eachOut(func(o *engine.RowOut) { slices.Reverse(o.Drafts) })})
	}
	if info.Capabilities.Logprobs {
		all = append(all, control{"drafts", "gives drafts no log-probabilities", eachOut(func(o *engine.RowOut) {
			for i := range o.Drafts {
				o.Drafts[i].Logprob, o.Drafts[i].Top = 0, nil
			}
		})})
	}
	return all
}

// badDrafts returns batches with drafts that must be refused.
func badDrafts(info *engine.Info) []badBatch {
	row := func(change func(x *engine.Row)) func(b *engine.Batch) {
		return badRow(func(x *engine.Row) {
			x.Drafts = []kv.Token{1}
			change(x)
		})
	}
	all := []badBatch{{"more drafts than MaxDrafts", row(func(x *engine.Row) { x.Drafts = make([]kv.Token, info.MaxDrafts+1) })}}
	if !takesDrafts(info) {
		return all
	}
	return append(all,
		badBatch{"drafts and no sample", row(func(x *engine.Row) { x.Sample = false })},
		badBatch{"a draft past end", row(func(x *engine.Row) { x.Drafts[0] = kv.Token(info.Vocab) })},
		badBatch{"drafts past the model", row(func(x *engine.Row) { x.Start = int32(info.MaxPositions) - 1 })},
		badBatch{"drafts past the table", row(func(x *engine.Row) {
			x.Start = int32(kv.CeilPages(int(x.Start)+1, info.PageTokens)*info.PageTokens) - 1
		})},
		badBatch{"two masks for one draft", row(func(x *engine.Row) { x.DraftMasks = make([]engine.MaskID, 2) })},
		badBatch{"a draft's mask that is not set", row(func(x *engine.Row) { x.DraftMasks = []engine.MaskID{1} })},
		badBatch{"drafts and log-probabilities of the prompt", row(func(x *engine.Row) { x.PromptLogprobs = true })},
		badBatch{"a row after one with drafts", func(b *engine.Batch) {
			b.Rows = append(b.Rows, b.Rows[0])
			b.Rows[0].Drafts = []kv.Token{1}
		}},
	)
}
