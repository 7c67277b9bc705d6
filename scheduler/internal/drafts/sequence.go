package drafts

import (
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/kv"
)

// Sequence guesses at the tokens of one sequence.
type Sequence struct {
	drafters [Sources]drafter // nil: the sequence has no such source
	record   Record           // of this sequence alone
	prompt   int              // tokens of the prompt
	taken    int              // tokens of the text that the drafters have read
}

// Offer is a draft of a sequence, which a step may verify in part.
type Offer struct {
	Source Source
	Tokens []kv.Token
	Gains  []float64 // by token: the probability that it is right, and all before it
	Take   int       // set by Choose: the number of Tokens to verify
}

// Arena is the memory of the offers of one step. Offers are valid until the next Reset.
type Arena struct {
	tokens  []kv.Token
	classes []class
	gains   []float64
}

// Reset forgets all offers.
func (a *Arena) Reset() { a.tokens, a.classes, a.gains = a.tokens[:0], a.classes[:0], a.gains[:0] }

// Origin describes a sequence before its first token of output.
type Origin struct {
	Prompt int              // tokens of the prompt
	Limit  int              // most tokens of the output
	Expect []kv.Token       // the output that the caller expects, or empty; the sequence keeps it
	Format *grammar.Grammar // of the output; nil: any
	Texts  *Texts           // of the requests of all namespaces; nil: none
	Space  kv.Namespace     // of the request
}

// NewSequence returns a sequence that has read nothing yet. It takes 8 bytes of memory for each token of
// prompt, output and expected output.
func NewSequence(o Origin) *Sequence {
	s := &Sequence{prompt: o.Prompt}
	s.drafters[Own] = newOwn(o.Prompt + o.Limit)
	if len(o.Expect) > 0 {
		s.drafters[Prediction] = newPrediction(o.Expect)
	}
	if o.Format != nil {
		s.drafters[Grammar] = newForced(o.Format)
	}
	if o.Texts != nil {
		s.drafters[Tree] = newTree(o.Texts, o.Space)
	}
	return s
}

// Take reads the tokens of text that the sequence has not read yet, at most the number most, and
// returns how many it read. text is the prompt with the output so far, and begins with what was read before.
// With each token of the output, all and the record of the sequence learn which sources were right.
// Cost: about 10 ns for a token of the prompt, and a microsecond or two for one of the output.
func (s *Sequence) Take(text []kv.Token, most int, all *Record) int {
	from := s.taken
	if n := min(s.prompt, s.taken+most); n > s.taken {
		s.taken = n
		for _, d := range s.drafters {
			if d != nil {
				d.read(text[:n])
			}
		}
	}
	for s.taken < min(len(text), from+most) {
		s.taken++
		for source, d := range s.drafters {
			if d == nil {
				continue
			}
			if c, right := d.take(text[:s.taken]); c != none {
				s.record.learn(Source(source), c, right)
				all.learn(Source(source), c, right)
			}
		}
	}
	return s.taken - from
}

// Offer returns the draft of the source whose next guess is most probably right, of at most the number
// most of tokens. It reports false if no source has a guess that is right with a probability above floor,
// or if tokens of text were not taken yet.
func (s *Sequence) Offer(text []kv.Token, most int, floor float64, all *Record, arena *Arena) (o Offer, ok bool) {
	if s.taken < len(text) || most <= 0 {
		return o, false
	}
	best, from := floor, drafter(nil)
	for source, d := range s.drafters {
		if d == nil || d.guess() == none {
			continue
		}
		if p := all.rate(&s.record, Source(source), d.guess()); p > best {
			best, o.Source, from = p, Source(source), d
		}
	}
	if from == nil {
		return o, false
	}
	first, firstClass, firstGain := len(arena.tokens), len(arena.classes), len(arena.gains)
	arena.tokens, arena.classes = from.draft(text, most, arena.tokens, arena.classes)
	p := 1.0
	for _, c := range arena.classes[firstClass:] {
		p = float64(p * all.rate(&s.record, o.Source, c))
		arena.gains = append(arena.gains, p)
	}
	o.Tokens, o.Gains = arena.tokens[first:len(arena.tokens):len(arena.tokens)], arena.gains[firstGain:len(arena.gains):len(arena.gains)]
	return o, len(o.Tokens) > 0
}
