package schedtest

import (
	"math"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// pieces are the texts of the first tokens of a world; the others have no text.
var pieces = strings.Split("a b c d e f g 0 1 2 [ ] , ab bc ca abc [[ ]] ],[ a,b 01 ,", " ")

// stopTexts are stop strings, and formats are output formats: each can be generated token by
// token from any state.
var (
	stopTexts   = []string{"a", "bc", "cab", "]]", ",[", "1a", "gg", "abcabc"}
	formatTexts = []string{"[abc]{2,9}", "(ab|bc|ca)+", "[a-g]*,[012]+", "(a|ab)(c|bcd)*", ".{0,40}"}
)

// shapes draws constraints on the text of outputs.
type shapes struct {
	rng     stream
	vocab   *grammar.Vocabulary
	formats []*grammar.Grammar
}

func newShapes(seed uint64, vocab *grammar.Vocabulary) *shapes {
	return &shapes{rng: newStream(seed, "shapes"), vocab: vocab}
}

func newVocabulary(tokens int) *grammar.Vocabulary {
	return grammar.NewVocabulary(tokens, func(t kv.Token) []byte {
		if int(t) < len(pieces) {
			return []byte(pieces[t])
		}
		return nil
	})
}

// constrain adds constraints on the text to most requests. limit is the request's output
// limit in tokens.
func (w *shapes) constrain(req *scheduler.Request, limit int) {
	rng := w.rng
	if rng.one(3) {
		req.MinTokens = rng.between(1, limit)
	}
	switch rng.IntN(4) {
	case 0:
		for range rng.between(1, 12) {
			req.AllowedTokens = append(req.AllowedTokens, kv.Token(rng.IntN(w.vocab.Size())))
		}
		req.MinTokens = min(req.MinTokens, pick(rng, 0, limit))
	case 1:
		req.Format = pick(rng, w.grammars()...)
		// A stop token that the format needs could leave no way to continue.
		req.StopTokens = slices.DeleteFunc(req.StopTokens, func(t kv.Token) bool { return len(w.vocab.Bytes(t)) > 0 })
	}
	if rng.one(2) {
		texts := make([]string, rng.between(1, 3))
		for i := range texts {
			texts[i] = pick(rng, stopTexts...)
		}
		req.Stops = must(grammar.NewStops(texts))
	}
}

// grammars returns the grammars of formatTexts, and a recursive one: lists of lists.
func (w *shapes) grammars() []*grammar.Grammar {
	if w.formats != nil {
		return w.formats
	}
	text := func(s string) *grammar.Expr { return &grammar.Expr{Op: grammar.Text, Text: s} }
	list := &grammar.Expr{Op: grammar.Call}
	more := &grammar.Expr{Op: grammar.Seq, Sub: []*grammar.Expr{text(","), list}}
	all := []grammar.Rules{{{Op: grammar.Seq, Sub: []*grammar.Expr{text("["), {
		Op: grammar.Repeat, Max: 1,
		Sub: []*grammar.Expr{{Op: grammar.Seq, Sub: []*grammar.Expr{list, {Op: grammar.Repeat, Sub: []*grammar.Expr{more}, Max: grammar.Unlimited}}}},
	}, text("]")}}}}
	for _, f := range formatTexts {
		all = append(all, must(grammar.ParseRegexp(f)))
	}
	for _, rules := range all {
		c := must(grammar.NewCompiler(w.vocab, rules, grammar.Limits{}))
		for !must(c.Run(math.MaxInt32)) {
		}
		w.formats = append(w.formats, c.Grammar())
	}
	return w.formats
}

// must panics if one of this package's texts is invalid.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// outline computes, from the request alone, which tokens may follow an output and where it
// ends.
type outline struct {
	req     *scheduler.Request
	vocab   *grammar.Vocabulary
	matcher *grammar.Matcher
	text    string
	heard   int // number of tokens processed
}

func newOutline(req *scheduler.Request, vocab *grammar.Vocabulary) *outline {
	o := &outline{req: req, vocab: vocab}
	if req.Format != nil {
		o.matcher = req.Format.NewMatcher()
	}
	return o
}

// mask returns the mask that a row must have after the given output; nil if all tokens are
// allowed. If the output has ended, the mask allows none.
func (o *outline) mask(output []kv.Token) []uint64 {
	if ended, _ := o.feed(output); ended {
		return make([]uint64, (o.vocab.Size()+63)/64)
	}
	if o.matcher == nil && len(o.req.AllowedTokens) == 0 && o.req.MinTokens == 0 {
		return nil
	}
	mask := make([]uint64, (o.vocab.Size()+63)/64)
	for t := range o.vocab.Size() {
		if o.allows(kv.Token(t), len(output)) {
			mask[t/64] |= 1 << (t % 64)
		}
	}
	return mask
}

func (o *outline) allows(t kv.Token, index int) bool {
	stop := slices.Contains(o.req.StopTokens, t)
	switch {
	case len(o.req.AllowedTokens) > 0 && !slices.Contains(o.req.AllowedTokens, t):
		return false
	case stop && index < o.req.MinTokens:
		return false
	case o.matcher == nil:
		return true
	case stop:
		return o.matcher.CanEnd()
	}
	return o.matcher.Clone().Accept(t)
}

// feed processes the tokens of output that it has not seen yet. It reports whether the
// output ends with one of them; e then has the reason.
func (o *outline) feed(output []kv.Token) (ended bool, e scheduler.Ending) {
	for ; o.heard < len(output); o.heard++ {
		t := output[o.heard]
		if slices.Contains(o.req.StopTokens, t) {
			return true, scheduler.Ending{Reason: scheduler.Stop, StopToken: true}
		}
		before := len(o.text)
		o.text += string(o.vocab.Bytes(t))
		if o.matcher != nil && o.matcher.Accept(t) && o.matcher.MustEnd() {
			return true, scheduler.Ending{Reason: scheduler.Stop}
		}
		if o.req.Stops == nil || o.heard < o.req.MinTokens {
			continue
		}
		// The match that ends first; among those that end together, the longest.
		for end := before + 1; end <= len(o.text); end++ {
			best := ""
			for i := range o.req.Stops.Len() {
				if s := o.req.Stops.String(i); len(s) > len(best) && strings.HasSuffix(o.text[:end], s) {
					best = s
				}
			}
			if best != "" {
				return true, scheduler.Ending{Reason: scheduler.Stop, StopString: best}
			}
		}
	}
	return false, e
}
