package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// decodeJSON decodes one JSON value. Objects keep the order of their keys.
func decodeJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested over %d deep", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		return decodeNumber(string(t)), nil
	case json.Delim:
		if t == '[' {
			out := &list{}
			for d.More() {
				v, err := decodeValue(d, depth+1)
				if err != nil {
					return nil, err
				}
				out.items = append(out.items, v)
			}
			_, err := d.Token()
			return out, err
		}
		out := newDict()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			out.set(key, v)
		}
		_, err := d.Token()
		return out, err
	}
	return token, nil
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

// jsonStyle has the formatting options of json.dumps.
type jsonStyle struct {
	indent     string // per level
	lines      bool   // one item per line
	item, key  string // separators
	ascii      bool
	sortedKeys bool
}

// writeJSON writes v to b as Python's json.dumps does, in the style s. depth is the nesting of v
// in the whole value.
func (r *run) writeJSON(b *strings.Builder, v any, s *jsonStyle, depth int) {
	r.spend(1)
	if depth > maxDepth {
		panic(failure{fmt.Errorf("%w: values nested over %d deep", ErrLimit, maxDepth)})
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case float64:
		b.WriteString(jsonFloat(v))
	case int64, wide:
		r.repr(b, v, depth)
	case string:
		r.spendText(len(v))
		jsonString(b, v, s.ascii)
	case *list:
		r.jsonItems(b, '[', ']', len(v.items), s, depth, func(i int) {
			r.writeJSON(b, v.items[i], s, depth+1)
		})
	case *dict:
		order := v
		if s.sortedKeys {
			order = r.sortedDict(v)
		}
		r.jsonItems(b, '{', '}', len(order.keys), s, depth, func(i int) {
			jsonString(b, r.jsonKey(order.keys[i]), s.ascii)
			b.WriteString(s.key)
			r.writeJSON(b, order.values[i], s, depth+1)
		})
	default:
		fail("a value of type %s is not JSON serializable", typeName(v))
	}
}

func (r *run) jsonItems(b *strings.Builder, open, end byte, n int, s *jsonStyle, depth int, write func(i int)) {
	b.WriteByte(open)
	for i := range n {
		if i > 0 {
			b.WriteString(s.item)
		}
		r.newLine(b, s, depth+1)
		write(i)
	}
	if n > 0 {
		r.newLine(b, s, depth)
	}
	b.WriteByte(end)
}

func (r *run) newLine(b *strings.Builder, s *jsonStyle, depth int) {
	if s.lines {
		r.spendText(len(s.indent) * depth)
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
	r.writeJSON(&b, key, &jsonStyle{}, 0)
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

func jsonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	return floatText(f)
}

// jsonString writes s like Python: it escapes quotes, backslashes and characters below the
// space, and with ascii also all characters that are not ASCII.
func jsonString(b *strings.Builder, s string, ascii bool) {
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		case c < 0x20, ascii && 0x7E < c && c < 0x10000:
			fmt.Fprintf(b, `\u%04x`, c)
		case ascii && c >= 0x10000:
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xD800+(c-0x10000)>>10, 0xDC00+(c-0x10000)&0x3FF)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
}
