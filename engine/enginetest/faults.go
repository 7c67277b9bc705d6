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
	spoil func(a *answer)
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
	NeedsHidden    // a hidden state
)

// needs has, by Need, whether a backend offers it, and whether a row with its slot's sampling
// parameters requests it.
var needs = [...]struct {
	offered   func(info *engine.Info) bool
	requested func(r *engine.Row, p *engine.SamplingParams) bool
}{
	NeedsSample:    {func(*engine.Info) bool { return true }, func(r *engine.Row, _ *engine.SamplingParams) bool { return r.Sample }},
	NeedsMask:      {offersMasks, func(r *engine.Row, _ *engine.SamplingParams) bool { return r.Sample && r.Mask != 0 }},
	NeedsLogprobs:  {offersLogprobs, func(r *engine.Row, p *engine.SamplingParams) bool { return r.Sample && p.Logprobs }},
	NeedsTop:       {offersLogprobs, func(r *engine.Row, p *engine.SamplingParams) bool { return r.Sample && p.TopLogprobs > 1 }},
	NeedsPrompt:    {offersPrompt, func(r *engine.Row, _ *engine.SamplingParams) bool { return r.PromptLogprobs && r.Len() > 1 }},
	NeedsPromptTop: {offersPrompt, func(r *engine.Row, _ *engine.SamplingParams) bool { return r.PromptTop > 1 && r.Len() > 1 }},
	NeedsHidden:    {offersHidden, func(r *engine.Row, _ *engine.SamplingParams) bool { return r.Hidden != engine.HiddenNone }},
}

// pastVocabulary is larger than any backend's vocabulary.
const pastVocabulary = kv.Token(math.MaxUint32)

var errOther = errors.New("enginetest: an error outside the contract")

// Faults returns all faults.
func Faults() []Fault {
	return slices.Concat(tokenFaults(), logprobFaults(), hiddenFaults(), wholeFaults())
}

// inRow makes a fault of one row's entry.
func inRow(name string, needs Need, spoil func(out *engine.RowOut)) Fault {
	return Fault{Name: name, Needs: needs, spoil: func(a *answer) { spoil(a.out) }}
}

// tokenFaults are faults of single answers and their tokens.
func tokenFaults() []Fault {
	return []Fault{
		{Name: "leaves out a row", spoil: func(a *answer) {
			at := a.out.Row
			a.res.Out = slices.DeleteFunc(a.res.Out, func(o engine.RowOut) bool { return o.Row == at })
		}},
		inRow("samples a token past the vocabulary", NeedsSample, func(o *engine.RowOut) { o.Token = pastVocabulary }),
		{Name: "samples a token that the mask forbids", Needs: NeedsMask, spoil: func(a *answer) {
			for a.out.Token = 0; allows(a.mask, a.out.Token); a.out.Token++ {
			}
		}},
		inRow("confirms drafts that the row does not have", NeedsSample, func(o *engine.RowOut) { o.Confirmed = math.MaxInt32 }),
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
	return []Fault{
		{Name: "answers a row that there is not", Whole: true, spoil: func(a *answer) {
			a.res.Out = append(a.res.Out, engine.RowOut{Row: len(a.batch.Rows)})
		}},
		{Name: "answers row -1", Whole: true, spoil: func(a *answer) {
			a.res.Out = slices.Insert(a.res.Out, 0, engine.RowOut{Row: -1})
		}},
		{Name: "answers a row twice", Whole: true, spoil: func(a *answer) {
			a.res.Out = append(a.res.Out, a.res.Out[len(a.res.Out)-1])
		}},
		{Name: "answers as another batch", Whole: true, spoil: func(a *answer) { a.res.Seq++ }},
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
	return needs[f.Needs].requested(r, p)
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
	mask := slices.Clone(b.masks.Of(x.Rows[row].Mask))
	return changed{t, func(res *engine.Result) {
		at := slices.IndexFunc(res.Out, func(o engine.RowOut) bool { return o.Row == row })
		if at < 0 {
			panic(fmt.Sprintf("enginetest: row %d of batch %d has no answer to spoil", row, x.Seq))
		}
		b.fault.spoil(&answer{res, &res.Out[at], x, mask})
	}}, nil
}

// answer is a copy of a batch's result with the entry of one row, for a fault to change.
type answer struct {
	res   *engine.Result
	out   *engine.RowOut
	batch *engine.Batch
	mask  []uint64 // the row's mask
}

// broken is a backend that breaks one rule: hooks change the inputs or the results of a sound
// backend. Hooks get copies; nil hooks change nothing.
type broken struct {
	engine.Backend
	engine.Mover // the sound backend's, or nil

	info    func(info *engine.Info)
	batch   func(b *broken, x *engine.Batch)
	move    func(b *broken, m *engine.Move, memory [][]byte) error // called in place of the sound backend's Move
	result  func(res *engine.Result)
	refused func(b *broken, err error) (engine.Ticket, error) // called when Submit failed
	close   func(b *broken) error

	slots map[engine.Slot]bool             // all slots ever bound
	masks map[engine.MaskID]engine.MaskSet // masks set by earlier batches
}

func (b *broken) Info() engine.Info {
	i := b.Backend.Info()
	if b.info != nil {
		b.info(&i)
	}
	return i
}

func (b *broken) Submit(x *engine.Batch) (engine.Ticket, error) {
	y := *x
	y.Binds, y.Copies, y.Rows = slices.Clone(x.Binds), slices.Clone(x.Copies), slices.Clone(x.Rows)
	y.After, y.Swaps = slices.Clone(x.After), slices.Clone(x.Swaps)
	y.Drops, y.Masks = slices.Clone(x.Drops), slices.Clone(x.Masks)
	if b.batch != nil {
		b.batch(b, &y)
	}
	t, err := b.Backend.Submit(&y)
	if err != nil && b.refused != nil {
		return b.refused(b, err)
	}
	if err != nil || b.result == nil {
		return t, err
	}
	return changed{t, b.result}, nil
}

// Move implements engine.Mover, if the sound backend does.
func (b *broken) Move(m *engine.Move, memory [][]byte) error {
	if b.move != nil {
		return b.move(b, m, slices.Clone(memory))
	}
	return b.Mover.Move(m, memory)
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close(b)
	}
	return b.Backend.Close()
}

// changed is a ticket whose result a control spoils.
type changed struct {
	engine.Ticket
	change func(res *engine.Result)
}

func (c changed) Result() (*engine.Result, error) {
	res, err := c.Ticket.Result()
	if err != nil {
		return nil, err
	}
	r := *res
	r.Out = slices.Clone(res.Out)
	c.change(&r)
	return &r, nil
}

// ended is a completed ticket with an empty result.
type ended struct{ done chan struct{} }

func newEnded() ended {
	t := ended{make(chan struct{})}
	close(t.done)
	return t
}

func (e ended) Done() <-chan struct{}           { return e.done }
func (e ended) Result() (*engine.Result, error) { return &engine.Result{}, nil }
