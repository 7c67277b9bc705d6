package schedtest

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// load generates requests. Most prompts use only three different tokens, so that prompts also
// share prefixes of any length by chance.
type load struct {
	rng      stream
	w        *setup
	vocab    int
	stems    [][]kv.Token // common prefixes of prompts
	examples [][]kv.Token // few-shot examples, always used whole
	turns    [][]kv.Token // prompts with their outputs, which conversations continue
	last     []kv.Token   // the previous prompt
	past     []question   // with tiers below the device: prompts to repeat
	nextID   scheduler.RequestID
	freed    []scheduler.RequestID // of ended requests, for reuse
	salts    []kv.Namespace
	open     stream // declares tokens public
	public   []int  // numbers of public tokens that requests with a salt declare; empty: none
	hot      bool   // most prompts use the same stem
	penalise bool
	tenants  []string
	many     bool                 // some requests have several samples
	patience time.Duration        // mean of deadlines and timeouts; 0: none
	shapes   *shapes              // nil: no constraints on the outputs' text
	now      func() time.Duration // for deadlines
	sessions hints
}

// question is a prompt and its namespace.
type question struct {
	ns     kv.Namespace
	prompt []kv.Token
}

func newLoad(o Options, w *setup, b bug) *load {
	rng := newStream(o.Seed, "load")
	l := &load{rng: rng, w: w, vocab: w.device.Vocab, hot: rng.one(3), penalise: rng.one(4)}
	for range 4 {
		l.stems = append(l.stems, l.tokens(rng.between(1, max(1, w.largest/2))))
	}
	for range 3 {
		l.examples = append(l.examples, l.tokens(rng.between(1, max(1, w.largest*2/3))))
	}
	l.salts = []kv.Namespace{{}, {}, {}, {Salt: "a"}, {Salt: "b"}, {LoRA: "a"}}
	if rng.one(2) || w.speedup > 1 {
		l.salts = l.salts[:1]
	}
	if l.open = newStream(o.Seed, "public"); l.open.one(2) {
		most := l.open.between(1, max(1, w.largest/2))
		l.public = []int{most, most, most, 0, l.open.between(1, 2*w.largest)}
	}
	if l.tenants = []string{"", "a", "a", "a", "b", "c"}; rng.one(3) {
		l.tenants = l.tenants[:1]
	}
	l.many = rng.one(3)
	if pools := newStream(o.Seed, "embeddings"); o.plant == nil && pools.one(3) { // worlds with a planted bug stay as they were
		w.embeds = &pools
	}
	if o.Seed%3 == 0 {
		l.shapes = newShapes(o.Seed, newVocabulary(w.device.Vocab))
	}
	if rng.one(3) {
		l.patience = w.stepTime * time.Duration(rng.between(5, 60))
	}
	l.sessions.rng = newStream(o.Seed, "sessions")
	l.sessions.on = l.sessions.rng.one(2)
	b.load(l)
	return l
}

// drawFields draws those fields of a request that do not belong to its text: tenant, class,
// priority, samples and time limits.
func (l *load) drawFields(req *scheduler.Request) {
	rng := l.rng
	req.Tenant, req.Class = pick(rng, l.tenants...), pick(rng, "", "", "short", "long")
	req.Priority = int32(pick(rng, 0, 0, 0, 1, 2, -1))
	req.Timeline = rng.one(4)
	if l.many && rng.one(3) {
		req.Samples = rng.between(1, 4)
	}
	if l.patience > 0 && rng.one(3) {
		req.Deadline = l.now() + 1 + rng.wait(l.patience)
	}
	if l.patience > 0 && rng.one(3) {
		req.QueueTimeout = 1 + rng.wait(l.patience)
	}
}

func (l *load) tokens(n int) []kv.Token {
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(l.rng.IntN(3))
	}
	return t
}

// next draws a request. A few are invalid on purpose.
func (l *load) next() scheduler.Request {
	rng := l.rng
	output := rng.between(1, max(1, l.w.largest/3))
	req := scheduler.Request{
		ID:        l.id(),
		Namespace: pick(rng, l.salts...),
		Prompt:    l.prompt(max(1, l.w.largest-output)),
		MaxTokens: output,
		Digest:    rng.one(4),
	}
	if l.w.cfg.Tiers != nil {
		l.again(&req)
	}
	if req.Namespace.Salt != "" && len(l.public) > 0 {
		req.PublicTokens = pick(l.open, l.public...)
	}
	if rng.one(10) {
		req.MaxTokens = 0
	}
	if rng.one(3) {
		for range rng.between(1, 3) {
			req.StopTokens = append(req.StopTokens, kv.Token(rng.IntN(l.vocab)))
		}
	}
	// Seeds must differ, since they identify the sample of a bind.
	req.Sampling = engine.SamplingParams{Seed: rng.Uint64(), Temperature: pick[float32](rng, 0, 0, 0.7, 1.5)}
	if l.penalise && rng.one(2) {
		req.Sampling.PresencePenalty = 0.5
	}
	l.drawFields(&req)
	l.nameSession(&req)
	if l.shapes != nil {
		l.shapes.constrain(&req, output)
	}
	if rng.one(25) {
		l.distort(&req)
	} else {
		l.embed(&req)
	}
	return req
}

// again replaces the prompt of req, in two of three calls, by an earlier one, possibly with
// more tokens: the KV of that prompt may have left the device. In the other calls it
// remembers the prompt of req.
func (l *load) again(req *scheduler.Request) {
	if rng := l.rng; len(l.past) > 0 && !rng.one(3) {
		old := pick(rng, l.past...)
		prompt := append(slices.Clone(old.prompt), l.tokens(rng.between(0, 3))...)
		req.Namespace, req.Prompt = old.ns, prompt[:min(len(prompt), max(1, l.w.largest-req.MaxTokens))]
		return
	}
	q := question{req.Namespace, slices.Clone(req.Prompt)}
	if len(l.past) < 8 {
		l.past = append(l.past, q)
	} else {
		l.past[l.rng.IntN(len(l.past))] = q
	}
}

func (l *load) id() scheduler.RequestID {
	if n := len(l.freed); n > 0 && l.rng.one(10) {
		id := l.freed[n-1]
		l.freed = l.freed[:n-1]
		return id
	}
	l.nextID++
	return l.nextID
}

// prompt draws a prompt. most is its maximum number of tokens.
func (l *load) prompt(most int) []kv.Token {
	rng := l.rng
	kind := rng.IntN(12)
	if l.hot && rng.one(2) {
		kind = 4
	}
	var p []kv.Token
	switch {
	case kind < 4: // a stem from its beginning to any length
		stem := pick(rng, l.stems...)
		p = append(slices.Clone(stem[:rng.IntN(len(stem)+1)]), l.tokens(rng.between(1, 12))...)
	case kind < 6: // few-shot
		p = append(slices.Clone(l.examples[rng.IntN(len(l.examples))]), l.tokens(rng.between(1, 4))...)
	case kind < 9 && len(l.turns) > 0: // the next turn of a conversation
		p = append(slices.Clone(pick(rng, l.turns...)), l.tokens(rng.between(1, 8))...)
	case kind == 9 && l.last != nil: // the previous prompt again, possibly while that one runs
		p = slices.Clone(l.last)
	case kind == 10: // long
		p = l.tokens(most)
	default: // unrelated to others
		p = l.tokens(rng.between(1, most))
		p[0] = kv.Token(3 + rng.IntN(l.vocab-3))
	}
	p = p[:min(len(p), most)]
	l.last = p
	if rng.one(8) && len(p) > 0 {
		l.stems[rng.IntN(len(l.stems))] = p
	}
	return p
}

// ended keeps the prompt and output of s, which has ended, for later turns of a
// conversation. If all samples of the request have ended, its ID may be used again.
func (l *load) ended(s *sample) {
	l.sessions.ended(s)
	turn := slices.Concat(s.of.req.Prompt, s.got)
	if len(turn) < l.w.largest {
		if l.turns = append(l.turns, turn); len(l.turns) > 6 {
			l.turns = l.turns[1:]
		}
	}
	if s.of.open == 0 {
		l.freed = append(l.freed, s.of.req.ID)
	}
}

// distort makes a request invalid in most cases.
func (l *load) distort(req *scheduler.Request) {
	switch l.rng.IntN(8) {
	case 0:
		req.Prompt = nil
	case 1:
		req.Prompt = l.tokens(cmp.Or(l.w.cfg.SharePages, l.w.device.Pages)*l.w.device.PageTokens + l.rng.between(0, 1))
	case 2:
		req.MaxTokens = cmp.Or(l.w.cfg.SharePages, l.w.device.Pages)*l.w.device.PageTokens - len(req.Prompt) + 1 + l.rng.between(0, 1)
	case 3:
		req.MaxTokens = -1
	case 4:
		req.Prompt = append(slices.Clone(req.Prompt), kv.Token(l.vocab))
	case 5:
		req.Sampling.TopP = 2
	case 6:
		req.Samples = pick(l.rng, -1, 65)
	case 7:
		req.Deadline = -1
	}
}
