package answer

import (
	"github.com/coppice-llm/coppice/openai"
)

// jsonWalk scans a JSON object byte by byte and detects its end, or a byte that can't belong to
// one. It does not check numbers, literals and escapes.
type jsonWalk struct {
	state   jsonState
	objects uint64 // bit i: open level i is an object, not an array
	depth   int
	closed  int  // depth before the last byte closed a level; 0 if it closed none
	size    int  // bytes scanned so far
	key     bool // the next string is a key
}

// jsonState determines which bytes may come next.
type jsonState uint8

const (
	jsonBegin jsonState = iota // expects the object's opening bracket
	jsonFirst                  // after an opening bracket: a key or value, or the closing bracket
	jsonNext                   // expects a key or value
	jsonColon                  // expects the colon after a key
	jsonAfter                  // after a value: a comma or the closing bracket
	jsonBare                   // inside a number or literal
	jsonString
	jsonEscape
)

// jsonStep is the outcome of a byte: the object continues, has ended, or is broken.
type jsonStep uint8

const (
	jsonMore jsonStep = iota
	jsonEnded
	jsonBroken
)

// step scans a byte. Do not call it again after jsonEnded.
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

// token scans a byte outside of strings that is not white space.
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

// begin scans the first byte of a key or value.
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

// open enters an array (0) or object (1), at most openai.MaxDepth deep.
func (w *jsonWalk) open(object uint64) jsonStep {
	if w.depth == openai.MaxDepth {
		return jsonBroken
	}
	w.objects = w.objects&^(1<<w.depth) | object<<w.depth
	w.depth++
	w.state = jsonFirst
	return jsonMore
}

// shut leaves the innermost level.
func (w *jsonWalk) shut() jsonStep {
	w.closed = w.depth
	w.depth--
	w.state, w.key = jsonAfter, false
	if w.depth == 0 {
		return jsonEnded
	}
	return jsonMore
}
