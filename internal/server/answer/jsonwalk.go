package answer

import (
	"github.com/coppice-llm/coppice/openai"
)

// jsonWalk follows a JSON object byte by byte and notices where it ends, or can't be
// one any more. Numbers, literals and escapes it takes for sound.
type jsonWalk struct {
	state   jsonState
	objects uint64 // of the open levels, a bit each: it is an object, not an array
	depth   int
	closed  int // depth at which the last byte closed something, one more than depth; 0 if it did not
	size    int // bytes so far
	key     bool
}

type jsonState uint8

const (
	jsonBegin jsonState = iota // the object's bracket
	jsonFirst                  // a key or value, or the end of what was opened
	jsonNext                   // a key or value
	jsonColon
	jsonAfter // a comma, or the end of what is open
	jsonBare  // in a number or literal
	jsonString
	jsonEscape
)

type jsonStep uint8

const (
	jsonMore jsonStep = iota
	jsonEnded
	jsonBroken
)

// step takes a byte. Nothing is to follow the end.
func (w *jsonWalk) step(c byte) jsonStep {
	w.size++
	w.closed = 0
	switch w.state {
	case jsonString:
		switch {
		case c == '"' && w.key:
			w.state = jsonColon
		case c == '"':
			w.state = jsonAfter
		case c == '\\':
			w.state = jsonEscape
		case c < ' ':
			return jsonBroken
		}
		return jsonMore
	case jsonEscape:
		w.state = jsonString
		return jsonMore
	case jsonBare:
		if '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '.' || c == '+' || c == '-' {
			return jsonMore
		}
		w.state = jsonAfter
	}
	if isSpace(c) {
		return jsonMore
	}
	return w.token(c)
}

// token takes a byte between strings that is no space.
func (w *jsonWalk) token(c byte) jsonStep {
	object := w.depth > 0 && w.objects>>(w.depth-1)&1 == 1
	switch w.state {
	case jsonBegin:
		if c == '{' {
			return w.open(1)
		}
	case jsonColon:
		if c == ':' {
			w.state, w.key = jsonNext, false
			return jsonMore
		}
	case jsonAfter:
		switch {
		case c == ',':
			w.state, w.key = jsonNext, object
			return jsonMore
		case object && c == '}' || !object && c == ']':
			return w.shut()
		}
	case jsonFirst:
		if object && c == '}' || !object && c == ']' {
			return w.shut()
		}
		w.key = object
		return w.begin(c)
	case jsonNext:
		return w.begin(c)
	}
	return jsonBroken
}

// begin takes the first byte of a key or value.
func (w *jsonWalk) begin(c byte) jsonStep {
	switch {
	case c == '"':
		w.state = jsonString
	case w.key:
		return jsonBroken
	case c == '{':
		return w.open(1)
	case c == '[':
		return w.open(0)
	case c == '-' || '0' <= c && c <= '9' || c == 't' || c == 'f' || c == 'n':
		w.state = jsonBare
	default:
		return jsonBroken
	}
	return jsonMore
}

func (w *jsonWalk) open(object uint64) jsonStep {
	if w.depth == openai.MaxDepth {
		return jsonBroken
	}
	w.objects = w.objects&^(1<<w.depth) | object<<w.depth
	w.depth++
	w.state = jsonFirst
	return jsonMore
}

func (w *jsonWalk) shut() jsonStep {
	w.closed = w.depth
	w.depth--
	w.state, w.key = jsonAfter, false
	if w.depth == 0 {
		return jsonEnded
	}
	return jsonMore
}
