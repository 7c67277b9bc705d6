package jsonschema

import (
	"slices"

	"github.com/coppice-llm/coppice/grammar"
)

// piece is one alternative of a pattern: the expression body, without anchors. body matches at
// the beginning of the string (begins), at its end (ends), at both, or anywhere if neither is
// set.
type piece struct {
	begins, ends bool
	body         *grammar.Expr
}

// maxPieces bounds the pieces of one pattern: each becomes a branch of the expression.
const maxPieces = 64

// anchored returns the alternatives of e as pieces without ^ and $. Anchors in alternatives
// multiply the pieces. It is an error if there are over maxPieces, or if a repeat has an anchor.
func (w widths) anchored(e *grammar.Expr) []piece {
	switch {
	case e == begin:
		return []piece{{begins: true, body: empty}}
	case e == end:
		return []piece{{ends: true, body: empty}}
	case !hasAnchor(e):
		return []piece{{body: joined(e)}}
	}
	switch e.Op {
	case grammar.Either:
		var all []piece
		for _, s := range e.Sub {
			if all = append(all, w.anchored(s)...); len(all) > maxPieces {
				lacks("^ and $ in over %d alternatives", maxPieces)
			}
		}
		return all
	case grammar.Seq:
		return w.anchoredSeq(e.Sub)
	}
	if e.Max == 1 { // Min is 0
		return append([]piece{{body: empty}}, w.anchored(e.Sub[0])...)
	}
	lacks("^ and $ in a repeat")
	return nil
}

// anchoredSeq returns the pieces of a sequence: all combinations of the pieces of its parts, except
// impossible ones.
func (w widths) anchoredSeq(parts []*grammar.Expr) []piece {
	all := []piece{{body: empty}}
	for i := 0; i < len(parts); {
		j := i // consecutive parts without anchors make one piece
		for j < len(parts) && !hasAnchor(parts[j]) {
			j++
		}
		next := []piece{{body: empty}}
		if j > i {
			next[0].body = joined(&grammar.Expr{Op: grammar.Seq, Sub: parts[i:j]})
			i = j
		} else {
			next = w.anchored(parts[i])
			i++
		}
		var product []piece
		for _, a := range all {
			for _, b := range next {
				if p, ok := w.after(a, b); ok {
					product = append(product, p)
				}
			}
		}
		if all = product; len(all) > maxPieces {
			lacks("^ and $ in over %d alternatives", maxPieces)
		}
	}
	return all
}

// after returns the piece that matches a followed by b. Text before a ^ and after a $ must be
// empty; ok is false if that is impossible.
func (w widths) after(a, b piece) (piece, bool) {
	p := piece{a.begins || b.begins, a.ends || b.ends, seq(a.body, b.body)}
	if b.begins {
		if lo, _ := w.of(a.body); lo > 0 {
			return piece{}, false
		}
		p.body = b.body
	}
	if a.ends {
		if lo, _ := w.of(b.body); lo > 0 {
			return piece{}, false
		}
		if p.body = a.body; b.begins {
			p.body = empty
		}
	}
	return p, p.body != nothing
}

func hasAnchor(e *grammar.Expr) bool {
	return e == begin || e == end || slices.ContainsFunc(e.Sub, hasAnchor)
}

// joined returns an expression that sequence has made, rebuilt with seq. Unlike sequence, seq
// joins adjacent texts.
func joined(e *grammar.Expr) *grammar.Expr {
	if e.Op == grammar.Runes && len(e.Runes) == 0 {
		return nothing
	}
	return rebuilt(e, joined)
}
