package drafts

import "github.com/coppice-llm/coppice/kv"

// settled is the length of a match that is followed without looking for others.
const settled = 16

// own guesses that a text goes on as it did after the same tokens before: the prompt has the file
// that the output changes, or the output repeats its own form. It follows the longest match. The other
// places that match tell how sure that is: after the name of a field comes a colon everywhere, after
// the colon a value that differs.
type own struct {
	index  ngrams
	places []place // that match the last tokens
	best   int     // index of the longest match in places; -1: none
	of     class   // of the guess
	alive  []int   // scratch of draft
}

func newOwn(tokens int) *own {
	return &own{index: newNgrams(tokens), places: make([]place, 0, tries), alive: make([]int, 0, tries), best: -1, of: none}
}

func (o *own) read(text []kv.Token) {
	o.index.add(text, len(text)-1)
	o.look(text)
}

func (o *own) take(text []kv.Token) (c class, right bool) {
	last := len(text) - 1
	c, right = o.of, o.best >= 0 && text[o.places[o.best].at] == text[last]
	o.index.add(text, last)
	if right && len(o.places) == 1 && o.places[0].length >= settled {
		p := &o.places[0]
		p.at++
		p.length = min(p.length+1, longest)
		o.of = ofLength(p.length, lone)
		return c, right
	}
	o.look(text)
	return c, right
}

// look finds the places that match the last tokens of text.
func (o *own) look(text []kv.Token) {
	o.places = o.index.find(text, text, o.places[:0])
	if o.best, o.of = longestOf(o.places, len(text)), none; o.best >= 0 {
		o.alive = o.alive[:0]
		for _, p := range o.places {
			o.alive = append(o.alive, p.at)
		}
		o.of = ofLength(o.places[o.best].length, o.viewOf(text, nil, 0, text[o.places[o.best].at]))
	}
}

func (o *own) guess() class { return o.of }

// viewOf tells how many of the places in alive, i tokens further, have the token guess. It leaves these
// in alive. guesses are the tokens after text.
func (o *own) viewOf(text, guesses []kv.Token, i int, guess kv.Token) view {
	all, kept := len(o.alive), o.alive[:0]
	for _, at := range o.alive {
		if after(text, guesses, at+i) == guess {
			kept = append(kept, at)
		}
	}
	o.alive = kept
	switch {
	case all == 1:
		return lone
	case len(kept) == all:
		return sure
	case 2*len(kept) >= all:
		return most
	}
	return split
}

// after returns the token at a position of text, or of the guesses that follow it: after "a b a b"
// comes "a b" without end.
func after(text, guesses []kv.Token, at int) kv.Token {
	if at < len(text) {
		return text[at]
	}
	return guesses[at-len(text)]
}

// draft copies what followed the longest match.
func (o *own) draft(text []kv.Token, most int, tokens []kv.Token, classes []class) ([]kv.Token, []class) {
	if o.best < 0 {
		return tokens, classes
	}
	first, best := len(tokens), o.places[o.best]
	o.alive = o.alive[:0]
	for _, p := range o.places {
		o.alive = append(o.alive, p.at)
	}
	for i := range most {
		t := after(text, tokens[first:], best.at+i)
		classes = append(classes, ofLength(best.length+i, o.viewOf(text, tokens[first:], i, t)))
		tokens = append(tokens, t)
	}
	return tokens, classes
}
