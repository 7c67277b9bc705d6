package enginetest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
)

// Fault is one way to answer a batch wrongly. Check "answers" must detect each fault; a scheduler
// must survive the faults that are not Whole.
type Fault struct {
	Name string // completes "a backend that …"
	// Whole reports that no part of the faulty result can be attributed to a row. Otherwise one
	// row's answer is wrong, and all others are sound.
	Whole bool
	// Needs lists what the row must request for the fault to show.
	Needs Need
	spoil func(of *spoilt, res *engine.Result, out *engine.RowOut) *engine.Result
}

// Need is a set of outputs that a row requests.
type Need uint8

// The needs.
const (
	NeedsSample Need = iota
	NeedsMask        // a mask, and a sample
	NeedsLogprobs
	NeedsTop
	NeedsPrompt    // log-probabilities of the prompt
	NeedsPromptTop // NeedsPrompt, and the most probable tokens at each position
)

// pastVocabulary is larger than any backend's vocabulary.
const pastVocabulary = kv.Token(math.MaxUint32)

var errOther = errors.New("enginetest: an error outside the contract")

// Faults returns all faults.
func Faults() []Fault { return slices.Concat(tokenFaults(), logprobFaults(), wholeFaults()) }

// inRow makes a fault of one row's entry.
func inRow(name string, needs Need, spoil func(out *engine.RowOut)) Fault {
	return Fault{Name: name, Needs: needs, spoil: func(_ *spoilt, res *engine.Result, out *engine.RowOut) *engine.Result {
		spoil(out)
		return res
	}}
}

// tokenFaults are faults of single answers and their tokens.
func tokenFaults() []Fault {
	return []Fault{
		{Name: "leaves out a row", spoil: func(_ *spoilt, res *engine.Result, out *engine.RowOut) *engine.Result {
			at := out.Row
			res.Out = slices.DeleteFunc(res.Out, func(o engine.RowOut) bool { return o.Row == at })
			return res
		}},
		inRow("samples a token past the vocabulary", NeedsSample, func(o *engine.RowOut) { o.Token = pastVocabulary }),
		{Name: "samples a token that the mask forbids", Needs: NeedsMask, spoil: func(of *spoilt, res *engine.Result, out *engine.RowOut) *engine.Result {
			for t := kv.Token(0); ; t++ {
				if !allows(of.mask, t) {
					out.Token = t
					return res
				}
			}
		}},
		inRow("fails a row for its logits", NeedsSample, func(o *engine.RowOut) { *o = engine.RowOut{Row: o.Row, Err: engine.ErrLogits} }),
		inRow("fails a row for a reason of its own", NeedsSample, func(o *engine.RowOut) { *o = engine.RowOut{Row: o.Row, Err: errOther} }),
	}
}

// logprobFaults are faults of log-probabilities.
func logprobFaults() []Fault {
	nan := float32(math.NaN())
	return []Fault{
		inRow("gives NaN for a log-probability", NeedsLogprobs, func(o *engine.RowOut) { o.Logprob = nan }),
		inRow("gives a probability above one", NeedsLogprobs, func(o *engine.RowOut) { o.Logprob = 0.5 }),
		inRow("leaves out the most probable tokens", NeedsTop, func(o *engine.RowOut) { o.Top = nil }),
		inRow("lists a token past the vocabulary", NeedsTop, func(o *engine.RowOut) {
			o.Top = slices.Clone(o.Top)
			o.Top[0].Token = pastVocabulary
		}),
		inRow("lists NaN", NeedsTop, func(o *engine.RowOut) {
			o.Top = slices.Clone(o.Top)
			o.Top[len(o.Top)-1].Logprob = nan
		}),
		inRow("lists the least probable first", NeedsTop, func(o *engine.RowOut) {
			o.Top = slices.Clone(o.Top)
			slices.Reverse(o.Top)
		}),
		inRow("leaves out log-probabilities of the prompt", NeedsPrompt, func(o *engine.RowOut) { o.Prompt = nil }),
		inRow("gives a log-probability of the prompt too many", NeedsPrompt, func(o *engine.RowOut) {
			o.Prompt = append(slices.Clone(o.Prompt), -1)
		}),
		inRow("gives NaN within a prompt", NeedsPrompt, func(o *engine.RowOut) {
			o.Prompt = slices.Clone(o.Prompt)
			o.Prompt[len(o.Prompt)-1] = nan
		}),
		inRow("leaves out the most probable tokens of a prompt", NeedsPromptTop, func(o *engine.RowOut) { o.PromptTop = nil }),
		inRow("leaves out those of one place", NeedsPromptTop, func(o *engine.RowOut) {
			o.PromptTop = slices.Clone(o.PromptTop)
			o.PromptTop[len(o.PromptTop)-1] = nil
		}),
		inRow("lists a token past the vocabulary in a prompt", NeedsPromptTop, spoilPlace(func(top []engine.TokenLogprob) { top[0].Token = pastVocabulary })),
		inRow("lists NaN in a prompt", NeedsPromptTop, spoilPlace(func(top []engine.TokenLogprob) { top[len(top)-1].Logprob = nan })),
		inRow("lists the least probable first in a prompt", NeedsPromptTop, spoilPlace(slices.Reverse)),
	}
}

// spoilPlace changes the list at the last position of a prompt.
func spoilPlace(change func(top []engine.TokenLogprob)) func(o *engine.RowOut) {
	return func(o *engine.RowOut) {
		o.PromptTop = slices.Clone(o.PromptTop)
		last := len(o.PromptTop) - 1
		o.PromptTop[last] = slices.Clone(o.PromptTop[last])
		change(o.PromptTop[last])
	}
}

// wholeFaults are faults of whole results.
func wholeFaults() []Fault {
	whole := func(name string, spoil func(of *spoilt, res *engine.Result, out *engine.RowOut) *engine.Result) Fault {
		return Fault{Name: name, Whole: true, spoil: spoil}
	}
	return []Fault{
		whole("answers a row that there is not", func(of *spoilt, res *engine.Result, _ *engine.RowOut) *engine.Result {
			res.Out = append(res.Out, engine.RowOut{Row: len(of.batch.Rows)})
			return res
		}),
		whole("answers row -1", func(_ *spoilt, res *engine.Result, _ *engine.RowOut) *engine.Result {
			res.Out = slices.Insert(res.Out, 0, engine.RowOut{Row: -1})
			return res
		}),
		whole("answers a row twice", func(_ *spoilt, res *engine.Result, out *engine.RowOut) *engine.Result {
			res.Out = append(res.Out, res.Out[len(res.Out)-1])
			return res
		}),
		whole("answers as another batch", func(_ *spoilt, res *engine.Result, _ *engine.RowOut) *engine.Result {
			res.Seq++
			return res
		}),
	}
}

// Plant wraps a sound backend with the fault. due is called once per batch, within Submit. It
// returns the index of the row whose answer the fault spoils, or false to leave the batch's
// answers as they are.
func (f Fault) Plant(sound engine.Backend, due func(x *engine.Batch) (row int, ok bool)) engine.Backend {
	return &faulty{Backend: sound, fault: f, due: due, masks: engine.NewMasks(sound.Info().MaxMasks)}
}

// Fits reports whether a row, with its slot's sampling parameters, requests f.Needs.
func (f Fault) Fits(r *engine.Row, p *engine.SamplingParams) bool {
	switch f.Needs {
	case NeedsMask:
		return r.Sample && r.Mask != 0
	case NeedsLogprobs:
		return r.Sample && p.Logprobs
	case NeedsTop:
		return r.Sample && p.TopLogprobs > 1
	case NeedsPrompt:
		return r.PromptLogprobs && r.Len() > 1
	case NeedsPromptTop:
		return r.PromptTop > 1 && r.Len() > 1
	default:
		return r.Sample
	}
}

type faulty struct {
	engine.Backend
	fault Fault
	due   func(x *engine.Batch) (row int, ok bool)
	masks engine.Masks // masks after the last submitted batch
}

func (b *faulty) Submit(x *engine.Batch) (engine.Ticket, error) {
	row, ok := b.due(x)
	t, err := b.Backend.Submit(x)
	if err != nil {
		return t, err
	}
	b.masks.Apply(x)
	if !ok {
		return t, nil
	}
	return &spoilt{t, b.fault, x, row, slices.Clone(b.masks.Of(x.Rows[row].Mask))}, nil
}

// spoilt is the ticket of a batch whose result the fault changes.
type spoilt struct {
	engine.Ticket
	fault Fault
	batch *engine.Batch
	row   int
	mask  []uint64 // the row's mask
}

func (s *spoilt) Result() (*engine.Result, error) {
	res, err := s.Ticket.Result()
	if err != nil {
		return nil, err
	}
	r := *res
	r.Out = slices.Clone(res.Out)
	at := slices.IndexFunc(r.Out, func(o engine.RowOut) bool { return o.Row == s.row })
	if at < 0 {
		panic(fmt.Sprintf("enginetest: row %d of batch %d has no answer to spoil", s.row, s.batch.Seq))
	}
	return s.fault.spoil(s, &r, &r.Out[at]), nil
}
