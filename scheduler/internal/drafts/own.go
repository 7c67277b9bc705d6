package drafts

import "github.com/coppice-llm/coppice/kv"

// settled is the length of a match that is followed without looking for a longer one.
const settled = 16

// own guesses that a text goes on as it did after the same tokens before: the prompt has the file
// that the output changes, or the output repeats its own form.
type own struct {
	index  ngrams
	at     int // position in the text of the token that is the guess
	length int // of the match before it; 0: no guess
}

func newOwn(tokens int) *own { return &own{index: newNgrams(tokens)} }

func (o *own) read(text []kv.Token) {
	o.index.add(text, len(text)-1)
	o.at, o.length = o.index.find(text, text, len(text))
}

func (o *own) take(text []kv.Token) (match int, right bool) {
	last := len(text) - 1
	match, right = o.length, o.length > 0 && text[o.at] == text[last]
	if right {
		o.at++
		o.length = min(o.length+1, longest)
	} else {
		o.length = 0
	}
	o.index.add(text, last)
	if o.length < settled {
		if at, n := o.index.find(text, text, len(text)); n > o.length {
			o.at, o.length = at, n
		}
	}
	return match, right
}

func (o *own) match() int { return o.length }

// draft copies what followed. Where that reaches the end of the text, it goes on with the guesses
// themselves: after "a b a b" comes "a b" without end.
func (o *own) draft(text []kv.Token, most int, dst []kv.Token) []kv.Token {
	if o.length == 0 {
		return dst
	}
	first := len(dst)
	for i := range most {
		if at := o.at + i; at < len(text) {
			dst = append(dst, text[at])
		} else {
			dst = append(dst, dst[first+at-len(text)])
		}
	}
	return dst
}
