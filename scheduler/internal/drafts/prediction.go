package drafts

import "github.com/coppice-llm/coppice/kv"

// expected is the length of match that the beginning of a prediction counts as: the caller said that
// the output will begin so.
const expected = 8

// prediction guesses that an output is the one that the caller expects (OpenAI's field "prediction").
// It follows the prediction from its start. After a token that differs, it goes on where the last
// tokens of the output occur in the prediction, nearest to where it was.
type prediction struct {
	expect []kv.Token
	index  ngrams
	places []place // scratch
	at     int     // position in expect of the token that is the guess
	length int     // of the match before it; 0: no guess
}

// atOnce is the number of tokens of a prediction that one token of output adds to the index: a whole file
// of program text, or some 40 µs of a step.
const atOnce = 4096

// newPrediction follows a prediction. It begins the index when a token first differs, a little before that
// place, and adds a part with each token without a guess. Of a prediction with more tokens than window the
// last ones stay in the index.
func newPrediction(expect []kv.Token) *prediction {
	return &prediction{expect: expect, length: expected}
}

func (p *prediction) read([]kv.Token) {}

func (p *prediction) take(text []kv.Token) (c class, right bool) {
	c, right = p.guess(), p.length > 0 && p.expect[p.at] == text[len(text)-1]
	if right {
		p.at++
		p.length = min(p.length+1, longest)
	} else {
		p.length = 0
	}
	if p.length == 0 {
		if p.places == nil {
			p.index, p.places = newNgrams(len(p.expect)), make([]place, 0, tries)
			p.index.upto = max(p.at-atOnce/4, 0)
		}
		p.index.add(p.expect, min(p.index.upto+atOnce, len(p.expect)-1))
		p.places = p.index.find(p.expect, text, p.places[:0])
		if best := longestOf(p.places, p.at); best >= 0 {
			p.at, p.length = p.places[best].at, p.places[best].length
		}
	}
	if p.at == len(p.expect) {
		p.length = 0
	}
	return c, right
}

func (p *prediction) guess() class {
	if p.length == 0 {
		return none
	}
	return ofLength(p.length, lone)
}

func (p *prediction) draft(_ []kv.Token, most int, tokens []kv.Token, classes []class) ([]kv.Token, []class) {
	if p.length == 0 {
		return tokens, classes
	}
	for i, t := range p.expect[p.at:min(p.at+most, len(p.expect))] {
		tokens, classes = append(tokens, t), append(classes, ofLength(p.length+i, lone))
	}
	return tokens, classes
}
