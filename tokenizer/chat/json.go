package chat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/bail"
)

// decodeJSON decodes one JSON value. Objects keep the order of their keys.
func decodeJSON(data []byte) (v any, err error) {
	defer bail.Recover(&err)
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v = decodeValue(d, 0)
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) any {
	if depth > maxDepth {
		bail.Out(fmt.Errorf("nested over %d deep", maxDepth))
	}
	switch t := nextToken(d).(type) {
	case json.Number:
		return decodeNumber(string(t))
	case json.Delim:
		if t == '[' {
			out := &list{}
			for d.More() {
				out.items = append(out.items, decodeValue(d, depth+1))
			}
			nextToken(d)
			return out
		}
		out := newDict()
		for d.More() {
			key := nextToken(d)
			out.set(key, decodeValue(d, depth+1))
		}
		nextToken(d)
		return out
	default:
		return t
	}
}

func nextToken(d *json.Decoder) json.Token {
	t, err := d.Token()
	if err != nil {
		bail.Out(err)
	}
	return t
}

// decodeNumber returns the value of the literal s, as Python's json does: an int64, or a wide if
// s has neither point nor exponent but does not fit 64 bits, or else a float64.
func decodeNumber(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if !strings.ContainsAny(s, ".eE") {
		return wide(s)
	}
	f, _ := strconv.ParseFloat(s, 64) // out of range is infinite, as in Python
	return f
}

// style is how values are written as text: as by Python's json.dumps, or as by its repr.
type style struct {
	json       bool
	indent     string // per level
	lines      bool   // one item per line
	item, key  string // separators
	ascii      bool
	sortedKeys bool
}

// repr implements Python's repr(v).
func (r *run) repr(v any) string {
	var b strings.Builder
	r.format(&b, v, &style{item: ", ", key: ": "}, 0)
	return b.String()
}

// pick returns the word of json.dumps or that of repr.
func (s *style) pick(json, repr string) string {
	if s.json {
		return json
	}
	return repr
}

// format writes v to b in the style s. depth is the nesting of v in the whole value.
func (r *run) format(b *strings.Builder, v any, s *style, depth int) {
	r.spend(1)
	if depth > maxDepth {
		bail.Out(fmt.Errorf("%w: values nested over %d deep", ErrLimit, maxDepth))
	}
	switch v := v.(type) {
	case nil:
		b.WriteString(s.pick("null", "None"))
	case bool:
		if v {
			b.WriteString(s.pick("true", "True"))
		} else {
			b.WriteString(s.pick("false", "False"))
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case wide:
		r.add(b, string(v))
	case float64:
		text := floatText(v)
		b.WriteString(s.pick(cmp.Or(jsonFloats[text], text), text))
	case string:
		r.quoted(b, v, s)
	case *list:
		open, end := "[", "]"
		if v.tuple && !s.json {
			open, end = "(", ")"
			if len(v.items) == 1 {
				end = ",)"
			}
		}
		r.formatItems(b, open, end, len(v.items), s, depth, func(i int) {
			r.format(b, v.items[i], s, depth+1)
		})
	case *dict:
		if s.sortedKeys {
			v = r.sortedDict(v)
		}
		r.formatItems(b, "{", "}", len(v.keys), s, depth, func(i int) {
			if s.json {
				r.quoted(b, r.jsonKey(v.keys[i]), s)
			} else {
				r.format(b, v.keys[i], s, depth+1)
			}
			r.add(b, s.key)
			r.format(b, v.values[i], s, depth+1)
		})
	case undefined:
		if s.json {
			fail(notJSON, typeName(v))
		}
		b.WriteString("Undefined")
	default:
		fail(s.pick(notJSON, "a %s can't be written as text"), typeName(v))
	}
}

const notJSON = "a value of type %s is not JSON serializable"

func (r *run) formatItems(b *strings.Builder, open, end string, n int, s *style, depth int, write func(i int)) {
	b.WriteString(open)
	for i := range n {
		if i > 0 {
			r.add(b, s.item)
		}
		r.newLine(b, s, depth+1)
		write(i)
	}
	if n > 0 {
		r.newLine(b, s, depth)
	}
	b.WriteString(end)
}

func (r *run) newLine(b *strings.Builder, s *style, depth int) {
	if s.lines {
		r.room(b.Len(), len(s.indent)*depth+1)
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(s.indent, depth))
	}
}

// jsonKey converts a dictionary's key to text, like json.dumps.
func (r *run) jsonKey(key any) string {
	if s, ok := key.(string); ok {
		return s
	}
	var b strings.Builder
	r.format(&b, key, &style{json: true}, 0)
	return b.String()
}

func (r *run) sortedDict(d *dict) *dict {
	keys := r.sorted(d.keys, nil, false, true)
	out := newDict()
	for _, key := range keys {
		v, _ := d.get(key)
		out.set(key, v)
	}
	return out
}

// jsonFloats are the names of json.dumps for floats that repr names otherwise.
var jsonFloats = map[string]string{"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}

// quoting returns the marks around a text and its escapes.
func (s *style) quoting(text string) (mark byte, escape func(c rune, n int) string) {
	switch {
	case s.json:
		return '"', jsonEscape(s.ascii)
	case strings.ContainsRune(text, '\'') && !strings.ContainsRune(text, '"'):
		return '"', reprEscape('"')
	}
	return '\'', reprEscape('\'')
}

// jsonEscape returns the escapes of Python's json.dumps: of quotes, backslashes and characters
// below the space, and with ascii also of all characters that are not ASCII.
func jsonEscape(ascii bool) func(c rune, n int) string {
	return func(c rune, n int) string {
		switch {
		case c < utf8.RuneSelf && c != '\'' && shortEscapes[c] != "":
			return shortEscapes[c]
		case c < 0x20, ascii && 0x7E < c && c < 0x10000:
			return fmt.Sprintf(`\u%04x`, c)
		case ascii && c >= 0x10000:
			return fmt.Sprintf(`\u%04x\u%04x`, 0xD800+(c-0x10000)>>10, 0xDC00+(c-0x10000)&0x3FF)
		case c == utf8.RuneError && n == 1:
			return string(c)
		}
		return ""
	}
}
