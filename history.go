package coppice

import "github.com/coppice-llm/coppice/kv"

// history is an immutable sequence of tokens: those of before, and then its own. Sessions that have the same
// beginning share it, so a copy of a history is a pointer. nil is the empty history.
//
//	        [ before.before | before.tokens | tokens )
//	tokens: 0                               end-len  end
//
// Runs of tokens grow towards the beginning as in a binary counter (see add), so a history of n tokens has
// O(log n) runs, however it was put together.
type history struct {
	before *history
	tokens []kv.Token // never changed; at least one
	end    int        // number of tokens, those of before included
}

// Len returns the number of tokens.
func (h *history) Len() int {
	if h == nil {
		return 0
	}
	return h.end
}

// add returns h followed by tokens, which it copies. A run that is not longer than what follows is copied with
// it into one, so a token is copied O(log n) times while n are added.
func (h *history) add(tokens []kv.Token) *history {
	if len(tokens) == 0 {
		return h
	}
	before, n := h, len(tokens)
	for before != nil && len(before.tokens) <= n {
		n += len(before.tokens)
		before = before.before
	}
	own := make([]kv.Token, n)
	h.copyFrom(own[:n-len(tokens)], before.Len())
	copy(own[n-len(tokens):], tokens)
	return &history{before, own, before.Len() + n}
}

// copyFrom fills dst with the last tokens of h, from token number from on.
func (h *history) copyFrom(dst []kv.Token, from int) {
	for at := h; len(dst) > 0; at = at.before {
		lo := at.end - len(at.tokens)
		n := len(dst) - max(lo-from, 0)
		copy(dst[len(dst)-n:], at.tokens[len(at.tokens)-n:])
		dst = dst[:len(dst)-n]
	}
}

// prefix returns the first n tokens of h.
func (h *history) prefix(n int) *history {
	for h != nil && h.end-len(h.tokens) >= n {
		h = h.before
	}
	if h == nil || h.end == n {
		return h
	}
	return &history{h.before, h.tokens[:n-(h.end-len(h.tokens))], n}
}

// list returns a new slice of all tokens, with room for more.
func (h *history) list(more int) []kv.Token {
	all := make([]kv.Token, h.Len(), h.Len()+more)
	h.copyFrom(all, 0)
	return all
}
