package drafts

import "github.com/coppice-llm/coppice/kv"

// expected is the length of match that the beginning of a prediction counts as: the caller said that
// the output will begin so.
const expected = 8

// prediction guesses that an output is the one that the caller expects (OpenAI's field "prediction").
// It follows the prediction from its start. After a token that differs, it goes on where the last
// tokens of the output occur in the prediction, nearest to where it was.
type prediction struct {
	guess  []kv.Token
	index  ngrams
	at     int // position in guess of the token that is the guess
	length int // of the match before it; 0: no guess
}

// newPrediction makes an index of the whole prediction, of which only the last tokens count if it has
// more than window.
func newPrediction(guess []kv.Token) *prediction {
	p := &prediction{guess: guess, index: newNgrams(len(guess)), length: expected}
	p.index.add(guess, len(guess)-1)
	return p
}

func (p *prediction) read([]kv.Token) {}

func (p *prediction) take(text []kv.Token) (match int, right bool) {
	match, right = p.length, p.length > 0 && p.guess[p.at] == text[len(text)-1]
	if right {
		p.at++
		p.length = min(p.length+1, longest)
	} else {
		p.length = 0
	}
	if p.length == 0 {
		if at, n := p.index.find(p.guess, text, p.at); n > 0 {
			p.at, p.length = at, n
		}
	}
	if p.at == len(p.guess) {
		p.length = 0
	}
	return match, right
}

func (p *prediction) match() int { return p.length }

func (p *prediction) draft(_ []kv.Token, most int, dst []kv.Token) []kv.Token {
	if p.length == 0 {
		return dst
	}
	return append(dst, p.guess[p.at:min(p.at+most, len(p.guess))]...)
}
