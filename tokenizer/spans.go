package tokenizer

import "strings"

// source iterates over the matches of an expression or a literal in a text and the text between
// them, in order, without empty ones.
type source struct {
	walk    walk // the zero value: search for literal instead
	text    string
	literal string
	from    int
}

func (s *source) next() (_ span, ok bool) {
	if s.walk.m != nil {
		return s.walk.span()
	}
	from := s.from
	if from == len(s.text) {
		return span{}, false
	}
	n := -1
	if s.literal != "" {
		n = strings.Index(s.text[from:], s.literal)
	}
	switch n {
	case -1:
		s.from = len(s.text)
	case 0:
		s.from += len(s.literal)
	default:
		s.from += n
	}
	return span{from, s.from, n == 0}, true
}

// joiner removes matches or joins them with their neighbours, as a Split's behavior requires.
// Among adjacent matches only the one next to unmatched text is joined with it.
type joiner struct {
	source
	behavior behavior
	invert   bool
	queued   span // the piece so far; the next span may be joined to it
	some     bool // queued is set
	matched  bool // the last span of the source was a match
	ended    bool
}

// next returns the next piece; ok is false after the last one.
func (j *joiner) next() (_ span, ok bool) {
	for j.behavior <= removed { // nothing is joined
		at, ok := j.source.next()
		if !ok || j.behavior == isolated || at.match == j.invert {
			return at, ok
		}
	}
	for !j.ended {
		at, ok := j.source.next()
		if !ok {
			j.ended = true
			return j.queued, j.some
		}
		at.match = at.match != j.invert
		joins := j.some && j.joins(at.match)
		j.matched = at.match
		if joins {
			j.queued.hi = at.hi
			continue
		}
		out, some := j.queued, j.some
		if j.queued, j.some = at, true; some {
			return out, true
		}
	}
	return span{}, false
}

// joins reports whether the next span is joined with j.queued. match reports whether that span is
// a match, after j.invert.
func (j *joiner) joins(match bool) bool {
	switch j.behavior {
	case contiguous:
		return match == j.matched
	case mergedWithPrevious:
		return match && !j.matched
	case mergedWithNext:
		return !match && j.matched
	}
	return false
}
