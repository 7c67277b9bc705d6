package scheduler

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine"
)

// ErrContract is wrapped by the error of a request that failed because the backend's
// answer for one of its rows breaks the contract of package engine.
var ErrContract = errors.New("scheduler: the backend broke its contract")

// checkResult panics if a result can't be attributed to the plan's rows: it belongs to
// another plan, or its entries name rows that do not exist or are not ascending. No single
// request could be failed for that. A fault of one row fails only that row's request, see
// checkRow.
func (p *Plan) checkResult(info *engine.Info, result *engine.Result) {
	if result.Seq != p.Batch.Seq {
		panic(fmt.Sprintf("scheduler: Complete of plan %d with result %d", p.Batch.Seq, result.Seq))
	}
	last := -1
	for i := range result.Out {
		row := result.Out[i].Row
		if row <= last || row >= len(p.rows) {
			panic(fmt.Sprintf("scheduler: backend %s answered plan %d of %d rows with entry %d for row %d after row %d",
				info.Name, p.Batch.Seq, len(p.rows), i, row, last))
		}
		last = row
	}
}

// checkRow returns nil, or the reason why row i failed: the backend's own error, or
// ErrContract if the answer is not what the row asked for. out is the answer, nil if the
// backend gave none. The first test covers nearly all rows: they have no mask and no
// log-probabilities, a token of the vocabulary, and no drafts.
func (p *Plan) checkRow(info *engine.Info, i int, out *engine.RowOut) error {
	r := &p.Batch.Rows[i]
	if out != nil && out.Err == nil && r.Sample && r.Mask == 0 && len(r.Drafts) == 0 && out.Confirmed == 0 && !r.PromptLogprobs && uint64(out.Token) < uint64(info.Vocab) {
		if s := &p.rows[i].q.req.Sampling; !s.Logprobs && s.TopLogprobs == 0 {
			return nil
		}
	}
	return p.checkAnswer(info, i, out)
}

// checkAnswer is checkRow without the shortcut.
func (p *Plan) checkAnswer(info *engine.Info, i int, out *engine.RowOut) error {
	r := &p.Batch.Rows[i]
	if out == nil {
		if r.Sample || r.PromptLogprobs || r.Hidden != engine.HiddenNone {
			return breach(info, i, "it has no answer")
		}
		return nil
	}
	if out.Err != nil {
		return out.Err
	}
	if r.Sample {
		if err := p.checkSample(info, i, out); err != nil {
			return err
		}
	}
	if r.Hidden != engine.HiddenNone {
		return checkHidden(info, i, out)
	}
	if r.PromptLogprobs {
		return checkPrompt(info, r, i, out)
	}
	return nil
}

// checkSample checks the sampled token in out and the confirmed drafts before it, and the
// log-probabilities that row i asked for. A wrong token would become part of a cache key and of a
// text; NaN or a positive number would end up in a JSON answer, which can't hold NaN.
func (p *Plan) checkSample(info *engine.Info, i int, out *engine.RowOut) error {
	r, asked := &p.Batch.Rows[i], &p.rows[i].q.req.Sampling
	c := int(out.Confirmed)
	switch {
	case c < 0 || c > len(r.Drafts):
		return breach(info, i, "it confirmed %d of %d drafts", c, len(r.Drafts))
	case len(out.Drafts) != c && (r.Digest || asked.Logprobs || asked.TopLogprobs > 0):
		return breach(info, i, "it describes %d of %d confirmed drafts", len(out.Drafts), c)
	case c < len(r.Drafts) && out.Token == r.Drafts[c]:
		return breach(info, i, "it sampled token %d and did not confirm it as draft %d", out.Token, c)
	}
	for j, t := range r.Drafts[:c] {
		d := engine.RowOut{Token: t}
		if len(out.Drafts) > 0 {
			d.Logprob, d.Top = out.Drafts[j].Logprob, out.Drafts[j].Top
		}
		if err := p.checkToken(info, i, r.MaskAt(j), &d); err != nil {
			return err
		}
	}
	return p.checkToken(info, i, r.MaskAt(c), out)
}

// checkToken checks one token of row i, which the mask must allow, with its log-probabilities.
func (p *Plan) checkToken(info *engine.Info, i int, mask engine.MaskID, out *engine.RowOut) error {
	t, asked := out.Token, &p.rows[i].q.req.Sampling
	switch {
	case uint64(t) >= uint64(info.Vocab):
		return breach(info, i, "it sampled token %d, the vocabulary has %d", t, info.Vocab)
	case !p.masks.Allows(mask, t):
		return breach(info, i, "it sampled token %d, which the row's mask forbids", t)
	case (asked.Logprobs || asked.TopLogprobs > 0) && !(out.Logprob <= 0): // negated, so that NaN fails too
		return breach(info, i, "the log-probability of token %d is %v", t, out.Logprob)
	}
	if asked.TopLogprobs == 0 {
		return nil
	}
	return checkTop(info, i, out.Top, asked.TopLogprobs)
}

// checkTop checks top, the most probable tokens of one position in the answer for row i: as
// many as asked says, all of the vocabulary, by descending log-probability.
func checkTop(info *engine.Info, i int, top []engine.TokenLogprob, asked int32) error {
	if want := min(int(asked), info.Vocab); len(top) != want {
		return breach(info, i, "it lists %d most probable tokens, %d were requested", len(top), want)
	}
	for j, e := range top {
		if uint64(e.Token) >= uint64(info.Vocab) || !(e.Logprob <= 0) || j > 0 && e.Logprob > top[j-1].Logprob {
			return breach(info, i, "entry %d of the most probable tokens is token %d with %v", j, e.Token, e.Logprob)
		}
	}
	return nil
}

// checkPrompt checks the prompt's log-probabilities in out, the answer for row i. The row r
// runs a chunk of a prompt. There must be a log-probability for each of its tokens, except
// for the first of the sequence, which no logits precede.
func checkPrompt(info *engine.Info, r *engine.Row, i int, out *engine.RowOut) error {
	want := r.Own()
	if r.Start == 0 {
		want--
	}
	if len(out.Prompt) != want {
		return breach(info, i, "it gives %d log-probabilities of the prompt for %d tokens from position %d on", len(out.Prompt), r.Len(), r.Start)
	}
	for j, l := range out.Prompt {
		if !(l <= 0) {
			return breach(info, i, "log-probability %d of the prompt is %v", j, l)
		}
	}
	if r.PromptTop == 0 {
		return nil
	}
	if len(out.PromptTop) != want {
		return breach(info, i, "it lists the most probable tokens at %d positions of the prompt, %d were requested", len(out.PromptTop), want)
	}
	for _, top := range out.PromptTop {
		if err := checkTop(info, i, top, r.PromptTop); err != nil {
			return err
		}
	}
	return nil
}

// breach makes an error that wraps ErrContract and names the backend and the row.
func breach(info *engine.Info, row int, format string, args ...any) error {
	return fmt.Errorf("%w: %s, row %d: %s", ErrContract, info.Name, row, fmt.Sprintf(format, args...))
}
