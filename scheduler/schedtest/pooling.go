package schedtest

import (
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/scheduler"
)

// embed makes req ask for an embedding in place of output: one request of four in a third of the worlds,
// but for those of tenants, which choose the lengths of outputs themselves.
func (l *load) embed(req *scheduler.Request) {
	if l.w.embeds == nil || len(l.w.callers) > 0 || !l.w.embeds.one(4) {
		return
	}
	req.Pooling = pick(*l.w.embeds, scheduler.LastToken, scheduler.MeanTokens)
	req.MaxTokens, req.MinTokens, req.Samples, req.Digest = 0, 0, 0, false
	req.Format, req.Stops, req.AllowedTokens = nil, nil, nil
}

// hidden checks which hidden state a row asks for, and that a request for the mean of all states takes
// nothing from the cache.
func (c *rowLimits) hidden(v *rowView) {
	req, want := &v.of.of.req, engine.HiddenNone
	switch last := int(v.row.Start)+v.row.Len() == len(req.Prompt); {
	case req.Pooling == scheduler.MeanTokens:
		want = engine.HiddenSum
	case req.Pooling == scheduler.LastToken && last:
		want = engine.HiddenLast
	}
	switch {
	case v.row.Hidden != want:
		c.failf("request %d with the pooling %v asks for hidden state %d at [%d,%d), want %d", req.ID, req.Pooling, v.row.Hidden, v.row.Start, int(v.row.Start)+v.row.Len(), want)
	case req.Pooling != scheduler.NoPooling && v.row.Sample:
		c.failf("request %d asks for an embedding, and samples", req.ID)
	case req.Pooling == scheduler.MeanTokens && v.fresh && v.row.Start != 0:
		c.failf("request %d needs the states of all tokens, but begins at token %d", req.ID, v.row.Start)
	}
}

// embedding checks that exactly the requests for embeddings that end well get one, and that of the model.
func (c *outputs) embedding(s *sample, o *scheduler.Output) {
	req := &s.of.req
	if req.Pooling == scheduler.NoPooling || o.Ending.Reason != scheduler.Stop {
		if o.Embedding != nil {
			c.failf("request %d gets an embedding, with the pooling %v and the ending %v", req.ID, req.Pooling, o.Ending.Reason)
		}
		return
	}
	want := c.r.oracle.ExpectHidden(req.Prompt, map[scheduler.Pooling]engine.Hidden{scheduler.LastToken: engine.HiddenLast, scheduler.MeanTokens: engine.HiddenSum}[req.Pooling])
	if req.Pooling == scheduler.MeanTokens {
		for i := range want {
			want[i] /= float32(len(req.Prompt))
		}
	}
	if !slices.Equal(o.Embedding, want) {
		c.failf("request %d gets the embedding %v, want %v", req.ID, o.Embedding, want)
	}
	c.r.report.Embeddings++
}
