package jsonschema

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

func (k kind) String() string {
	return [...]string{"null", "boolean", "number", "string", "array", "object"}[k]
}

// value is a JSON value of the schema, with its place. Members of an object keep the order of
// the text.
type value struct {
	kind    kind
	yes     bool     // of a boolean
	text    string   // value of a string; literal of a number
	names   []string // of an object
	members []*value // of an object, parallel to names; elements of an array

	parent *value
	index  int            // in parent's members
	byName map[string]int // index by name, for objects of over 8 members
	id     int            // number in the order of the text
	keyed  string         // cache of key
}

// get returns the member called name, nil if there is none.
func (v *value) get(name string) *value {
	if v.byName != nil {
		if i, ok := v.byName[name]; ok {
			return v.members[i]
		}
		return nil
	}
	if i := slices.Index(v.names, name); i >= 0 {
		return v.members[i]
	}
	return nil
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns v's JSON pointer (RFC 6901).
func (v *value) pointer() string {
	var parts []string
	for ; v.parent != nil; v = v.parent {
		part := strconv.Itoa(v.index)
		if v.parent.kind == object {
			part = pointerEscapes.Replace(v.parent.names[v.index])
		}
		parts = append(parts, "/"+part)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

// decoder reads a schema's text into values.
type decoder struct {
	json  *json.Decoder
	cfg   Config
	count int
}

// decode parses a schema. It fails if the schema is not JSON in UTF-8, has duplicate names, or
// exceeds MaxBytes, MaxDepth or MaxValues of cfg.
func decode(schema []byte, cfg Config) *value {
	root := &value{}
	if len(schema) > cfg.MaxBytes {
		tooMuch(root, "", "%d bytes, MaxBytes is %d", len(schema), cfg.MaxBytes)
	}
	if !utf8.Valid(schema) {
		wrong(root, "", "not UTF-8")
	}
	if d := depth(schema); d > cfg.MaxDepth {
		tooMuch(root, "", "arrays and objects %d deep, MaxDepth is %d", d, cfg.MaxDepth)
	}
	if !json.Valid(schema) { // Decoder.Token accepts some invalid texts
		var any any
		wrong(root, "", "not JSON: %v", json.Unmarshal(schema, &any))
	}
	d := &decoder{json: json.NewDecoder(bytes.NewReader(schema)), cfg: cfg}
	d.json.UseNumber()
	d.into(root)
	return root
}

// depth returns how deep brackets nest in text, which need not be valid JSON. decode checks the
// depth before any recursive parser runs.
func depth(text []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}

// into reads the next value into v.
func (d *decoder) into(v *value) {
	v.id = d.count
	if d.count++; d.count > d.cfg.MaxValues {
		tooMuch(v, "", "over MaxValues, %d", d.cfg.MaxValues)
	}
	switch t := d.token(v).(type) {
	case nil:
		v.kind = null
	case bool:
		v.kind, v.yes = boolean, t
	case json.Number:
		v.kind, v.text = number, t.String()
	case string:
		v.kind, v.text = text, t
	case json.Delim:
		v.kind = array
		if t == '{' {
			v.kind, v.byName = object, make(map[string]int)
		}
		for d.json.More() {
			if v.kind == object {
				d.name(v)
			}
			m := &value{parent: v, index: len(v.members)}
			v.members = append(v.members, m)
			d.into(m)
		}
		if len(v.names) <= 8 {
			v.byName = nil
		}
		d.token(v) // the closing bracket
	}
}

// name reads the name of the next member of v, an object. A duplicate name is an error, because
// parsers differ on which of the two members counts.
func (d *decoder) name(v *value) {
	name := d.token(v).(string)
	if _, ok := v.byName[name]; ok {
		wrong(v, "", "has %.100q twice", name)
	}
	v.byName[name] = len(v.names)
	v.names = append(v.names, name)
}

func (d *decoder) token(v *value) json.Token {
	t, err := d.json.Token()
	if err != nil {
		wrong(v, "", "%v", err)
	}
	return t
}

// key returns a string that is equal for values that JSON Schema considers equal. It treats
// numbers by value and ignores the order of members.
func (v *value) key() string {
	if v.keyed == "" {
		v.keyed = string(v.appendKey(nil))
	}
	return v.keyed
}

func (v *value) appendKey(key []byte) []byte {
	key = append(key, v.kind.String()...)
	switch v.kind {
	case boolean:
		return strconv.AppendBool(key, v.yes)
	case text:
		return strconv.AppendQuote(key, v.text)
	case number:
		return append(key, plainNumber(v.text)...)
	case array:
		key = append(key, '[')
		for _, m := range v.members {
			key = append(m.appendKey(key), ',')
		}
		return append(key, ']')
	case object:
		order := make([]int, len(v.names))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return strings.Compare(v.names[a], v.names[b]) })
		key = append(key, '{')
		for _, i := range order {
			key = append(v.members[i].appendKey(strconv.AppendQuote(key, v.names[i])), ',')
		}
		return append(key, '}')
	}
	return key
}

// plainNumber returns one literal for all literals of the same value: its digits without zeros
// at either end, and a power of ten. 1200, 12e2 and 1.2e3 all give 12e2.
func plainNumber(literal string) string {
	digits, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	power := 0
	if exponent != "" {
		var err error
		if power, err = strconv.Atoi(exponent); err != nil {
			return literal // the exponent does not fit an int, so no plain literal equals it
		}
	}
	digits, negative := strings.CutPrefix(digits, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	power -= len(fraction)
	plain := strings.TrimRight(digits, "0")
	if plain == "" {
		return "0"
	}
	if negative {
		plain = "-" + plain
	}
	return plain + "e" + strconv.Itoa(power+len(digits)-len(strings.TrimLeft(plain, "-")))
}

// rational returns the value of a number's literal. It returns false for over 2*maxDigits
// characters or an exponent beyond ±maxDigits, whose value would take much memory.
func rational(literal string) (*big.Rat, bool) {
	if _, exponent, ok := strings.Cut(strings.ToLower(literal), "e"); ok {
		if e, err := strconv.Atoi(exponent); err != nil || e < -maxDigits || e > maxDigits {
			return nil, false
		}
	}
	if len(literal) > 2*maxDigits {
		return nil, false
	}
	return new(big.Rat).SetString(literal)
}
