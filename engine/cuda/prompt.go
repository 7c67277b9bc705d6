package cuda

import (
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/internal/sampling"
)

// promptLists has lists with an entry for each prompt token whose log-probability is requested.
type promptLists struct {
	sources   part // index of the token before it, or -1-slot for the slot's kept x
	targets   part // {token, row, slot}
	keeps     part // {slot, index of the token whose x is kept}
	promptTop int  // highest PromptTop of a row
	spans     []span
}

// span is the range of promptLists' entries that belongs to a row: n entries from index at.
// unknown reports that the logits before the row's first token are not available.
type span struct {
	at, n   int
	unknown bool
}

// prompts lists the prompt tokens whose log-probability is requested. The logits before a row's
// first token are computed from the last token of the previous row in the same slot, whose x is
// kept on the device.
func (p *planner) prompts(b *engine.Batch) {
	var sources, targets, keeps []int32
	for i := range b.Rows {
		r := &b.Rows[i]
		if !r.PromptLogprobs {
			continue
		}
		p.promptTop = max(p.promptTop, int(r.PromptTop))
		s := span{at: len(sources)}
		for j := range r.Len() {
			from := int32(p.first[i] + j - 1)
			switch {
			case j > 0:
			case r.Start == 0:
				continue
			case p.kept[r.Slot] != r.Start:
				s.unknown = true
				continue
			default:
				from = -1 - int32(r.Slot)
				if at := keepOf(keeps, r.Slot); at >= 0 {
					from = keeps[at+1] // a row of this batch
				}
			}
			token := int32(-1)
			if !r.Deferred {
				token = int32(r.Tokens[j])
			}
			sources, targets = append(sources, from), append(targets, token, int32(i), int32(r.Slot))
		}
		s.n = len(sources) - s.at
		p.spans = append(p.spans, s)
		p.kept[r.Slot] = r.Start + int32(r.Len())
		last := int32(p.first[i] + r.Len() - 1)
		if at := keepOf(keeps, r.Slot); at >= 0 {
			keeps[at+1] = last
		} else {
			keeps = append(keeps, int32(r.Slot), last)
		}
	}
	p.sources, p.targets, p.keeps = p.list(1, 0, sources...), p.list(3, 0, targets...), p.list(2, 0, keeps...)
}

// keepOf returns the index of slot s's entry in keeps, which has two values per entry; -1 if there
// is none.
func keepOf(keeps []int32, s engine.Slot) int {
	for at := 0; at < len(keeps); at += 2 {
		if keeps[at] == int32(s) {
			return at
		}
	}
	return -1
}

// prompts queues the log-probabilities of prompt tokens, MaxRows at a time, because the buffer of
// logits has MaxRows rows. Then it keeps the x of the rows' last tokens for the next step.
func (l *launcher) prompts() {
	p, r, c := l.p, &l.room, l.model
	for lo := 0; lo < p.sources.n; lo += l.cfg.MaxRows {
		n := min(p.sources.n-lo, l.cfg.MaxRows)
		l.norm(n, l.w.norm, l.at(p.sources)+cudrv.Ptr(4*lo), 0)
		l.product(r.work, r.acts, l.w.head, 0, n, c.Vocab, c.Hidden, toF32, 0)
		l.launch("prompt_logprobs", n, 1, 512, 0, r.prompt.norms+cudrv.Ptr(normBytes*lo), r.prompt.tops+cudrv.Ptr(topBytes*p.promptTop*lo), r.prompt.picked+cudrv.Ptr(4*lo),
			r.failed, r.work, l.at(p.targets)+cudrv.Ptr(12*lo), r.last, int32(p.promptTop), int32(c.Vocab))
	}
	if n := p.keeps.n; n > 0 {
		l.launch("keep", n, 1, 256, 0, r.prompt.kept, r.x, l.at(p.keeps), int32(c.Hidden))
	}
}

// readPrompt sets the log-probabilities of the prompt tokens of row r in ro, unless the row has
// failed. s is the range of the row's entries.
func (b *Backend) readPrompt(ro *engine.RowOut, r *engine.Row, j *job, s span) {
	if ro.Err != nil {
		return
	}
	o, out := &j.plan, reply(j.place.out)
	ro.Prompt = make([]float32, 0, s.n+1)
	if s.unknown {
		sampling.PromptUnknown(r, ro)
	}
	for i := s.at; i < s.at+s.n; i++ {
		norm := o.promptNormsAt() + normBytes*i
		ro.Prompt = append(ro.Prompt, out.logprob(o.promptPickedAt()+4*i, norm))
		if r.PromptTop > 0 {
			ro.PromptTop = append(ro.PromptTop, out.top(o.promptTopsAt()+topBytes*i*o.promptTop, min(int(r.PromptTop), b.info.Vocab), norm))
		}
	}
}
