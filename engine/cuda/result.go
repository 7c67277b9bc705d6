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
	o, out := &j.plan, j.place.out
	res := &engine.Result{Seq: j.Batch.Seq, Stats: o.stats}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(out[at:]) }
	next, spans := 0, o.spans
	for i := range j.Batch.Rows {
		r := &j.Batch.Rows[i]
		failed := word(4*i) != 0
		w := -1
		if next < len(o.wantRow) && o.wantRow[next] == i {
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
			b.read(&ro, r, j, w)
			if r.Sample && ro.Err == nil {
				res.Stats.Samples++
			}
		}
		res.Out = append(res.Out, ro)
	}
	return res
}

// read sets the output of row r in ro. w is the row's index among the rows with logits.
func (b *Backend) read(ro *engine.RowOut, r *engine.Row, j *job, w int) {
	o, out := &j.plan, j.place.out
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(out[at:]) }
	float := func(at int) float32 { return math.Float32frombits(word(at)) }
	if r.Digest {
		n := 4 * b.info.Vocab
		ro.Digest = xxh3.Hash(out[o.logitsAt()+w*n:][:n])
	}
	drawn := o.drawnAt() + drawnBytes*w
	token := int(int32(word(drawn + 4)))
	switch word(drawn) {
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
	if o.asked[w] < 0 {
		return
	}
	most, logSum := float(o.normsAt()+normBytes*w), float(o.normsAt()+normBytes*w+4)
	ro.Logprob = (float(drawn+8) - most) - logSum
	for k := range min(o.asked[w], b.info.Vocab) {
		at := o.topsAt() + topBytes*(w*max(o.top, 1)+k)
		ro.Top = append(ro.Top, engine.TokenLogprob{Token: kv.Token(word(at + 4)), Logprob: (float(at) - most) - logSum})
	}
}
