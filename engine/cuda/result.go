package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// result returns the result of a job from the data that the device has sent back.
func (b *Backend) result(j *job) *engine.Result {
	o, out := &j.plan, reply(j.place.out)
	res := &engine.Result{Seq: j.Batch.Seq, Stats: o.stats}
	if o.refused != nil {
		res.Stats = engine.StepStats{MemoryFailures: 1}
		for i := range j.Batch.Rows {
			res.Out = append(res.Out, engine.RowOut{Row: i, Err: o.refused})
		}
		return res
	}
	next, spans := 0, o.spans
	for i := range j.Batch.Rows {
		r := &j.Batch.Rows[i]
		failed := out.word(4*i) != 0
		w := -1
		if next < len(o.samples) && o.samples[next].row == i {
			w = next
			next++
		}
		if w < 0 && !failed && !r.PromptLogprobs {
			continue
		}
		ro := engine.RowOut{Row: i}
		if failed {
			ro.Err = fmt.Errorf("%w: row %d", engine.ErrLogits, i)
		}
		if r.PromptLogprobs {
			b.readPrompt(&ro, r, j, spans[0])
			spans = spans[1:]
		}
		if !failed && w >= 0 {
			b.readDrafts(&ro, r, j, w)
			if r.Sample && ro.Err == nil {
				res.Stats.Samples += 1 + int(ro.Confirmed)
				res.Stats.Confirmed += int(ro.Confirmed)
			}
		}
		res.Out = append(res.Out, ro)
	}
	return res
}

// readDrafts sets the output of row r in ro: that of its sample 0, which has index w, or of the sample
// after its last confirmed draft.
func (b *Backend) readDrafts(ro *engine.RowOut, r *engine.Row, j *job, w int) {
	o := &j.plan
	for b.read(ro, r, j, w); ro.Err == nil && o.samples[w].then >= 0 && ro.Token == r.Drafts[ro.Confirmed]; b.read(ro, r, j, w) {
		if r.Digest || o.samples[w].asked >= 0 {
			ro.Drafts = append(ro.Drafts, engine.DraftOut{Logprob: ro.Logprob, Top: ro.Top, Digest: ro.Digest})
		}
		w = o.samples[w].then
		ro.Confirmed++
	}
	if ro.Err != nil {
		*ro = engine.RowOut{Row: ro.Row, Prompt: ro.Prompt, PromptTop: ro.PromptTop, Err: ro.Err}
	}
}

// read sets the output of sample w, which belongs to row r, in ro.
func (b *Backend) read(ro *engine.RowOut, r *engine.Row, j *job, w int) {
	o, out := &j.plan, reply(j.place.out)
	if r.Digest {
		n := 4 * b.info.Vocab
		ro.Digest = xxh3.Hash(out[o.logitsAt()+w*n:][:n])
	}
	drawn := o.drawnAt() + drawnBytes*w
	token := int(int32(out.word(drawn + 4)))
	switch out.word(drawn) {
	case drawnNaN, drawnFailed:
		ro.Err = fmt.Errorf("%w: row %d, token %d", engine.ErrLogits, ro.Row, token)
		return
	case drawnNoToken:
		ro.Err = fmt.Errorf("%w: row %d", engine.ErrNoToken, ro.Row)
		return
	}
	if !r.Sample {
		return
	}
	ro.Token = kv.Token(token)
	if o.samples[w].asked < 0 {
		return
	}
	norm := o.normsAt() + normBytes*w
	ro.Logprob = out.logprob(drawn+8, norm)
	ro.Top = out.top(o.topsAt()+topBytes*w*max(o.top, 1), min(o.samples[w].asked, b.info.Vocab), norm)
}

// reply holds the data that the device has sent back for a batch, see place.out.
type reply []byte

// top returns the n most probable tokens that are listed at an offset.
func (r reply) top(at, n, norm int) (top []engine.TokenLogprob) {
	for range n {
		top = append(top, engine.TokenLogprob{Token: kv.Token(r.word(at + 4)), Logprob: r.logprob(at, norm)})
		at += topBytes
	}
	return top
}

// logprob returns the log-probability for the logit at an offset. norm is the offset of the largest
// logit and of the logarithm of the sum.
func (r reply) logprob(logit, norm int) float32 {
	return (r.float(logit) - r.float(norm)) - r.float(norm+4)
}

func (r reply) float(at int) float32 { return math.Float32frombits(r.word(at)) }
func (r reply) word(at int) uint32   { return binary.LittleEndian.Uint32(r[at:]) }
