package jsonschema

import (
	"encoding/json"
	"math/big"
	"net/mail"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// validator evaluates JSON Schema on values, independently of the rest of the package: it is
// the oracle of validity. Values are those of encoding/json with UseNumber. It treats oneOf as
// anyOf.
type validator struct {
	root any
	// lenient treats a format next to a pattern as an annotation, as the package does.
	lenient bool
}

func parse(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

func (c validator) valid(schema, v any) bool {
	if b, ok := schema.(bool); ok {
		return b
	}
	s := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok && !c.valid(c.target(ref), v) {
		return false
	}
	if t, ok := s["type"]; ok && !hasType(t, v) {
		return false
	}
	if enum, ok := s["enum"].([]any); ok && !anyOf(enum, func(e any) bool { return same(e, v) }) {
		return false
	}
	if e, ok := s["const"]; ok && !same(e, v) {
		return false
	}
	for _, sub := range listOf(s["allOf"]) {
		if !c.valid(sub, v) {
			return false
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if l := listOf(s[keyword]); l != nil && !anyOf(l, func(sub any) bool { return c.valid(sub, v) }) {
			return false
		}
	}
	switch v := v.(type) {
	case json.Number:
		return c.validNumber(s, v)
	case string:
		return c.validString(s, v)
	case []any:
		return c.validArray(s, v)
	case map[string]any:
		return c.validObject(s, v)
	}
	return true
}

func listOf(v any) []any { l, _ := v.([]any); return l }

func anyOf(l []any, f func(any) bool) bool {
	for _, v := range l {
		if f(v) {
			return true
		}
	}
	return false
}

func (c validator) target(ref string) any {
	v := c.root
	path, _ := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	for _, part := range strings.Split(path, "/")[1:] {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch w := v.(type) {
		case map[string]any:
			v = w[part]
		case []any:
			v = w[int(part[0]-'0')]
		}
	}
	return v
}

func hasType(t, v any) bool {
	if l, ok := t.([]any); ok {
		return anyOf(l, func(t any) bool { return hasType(t, v) })
	}
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	case json.Number:
		return t == "number" || t == "integer" && rat(v).IsInt()
	}
	return false
}

func rat(n json.Number) *big.Rat {
	r, _ := new(big.Rat).SetString(string(n))
	return r
}

func same(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		n, ok := b.(json.Number)
		return ok && rat(a).Cmp(rat(n)) == 0
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return false
		}
		for i := range a {
			if !same(a[i], l[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok || len(m) != len(a) {
			return false
		}
		for k := range a {
			if w, ok := m[k]; !ok || !same(a[k], w) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

func (c validator) validNumber(s map[string]any, n json.Number) bool {
	x := rat(n)
	for keyword, ok := range map[string]func(int) bool{
		"minimum":          func(c int) bool { return c >= 0 },
		"maximum":          func(c int) bool { return c <= 0 },
		"exclusiveMinimum": func(c int) bool { return c > 0 },
		"exclusiveMaximum": func(c int) bool { return c < 0 },
	} {
		if b, is := s[keyword].(json.Number); is && !ok(x.Cmp(rat(b))) {
			return false
		}
	}
	if m, ok := s["multipleOf"].(json.Number); ok && !new(big.Rat).Quo(x, rat(m)).IsInt() {
		return false
	}
	return true
}

func counted(s map[string]any, n int, least, most string) bool {
	if b, ok := s[least].(json.Number); ok && rat(b).Cmp(big.NewRat(int64(n), 1)) > 0 {
		return false
	}
	b, ok := s[most].(json.Number)
	return !ok || rat(b).Cmp(big.NewRat(int64(n), 1)) >= 0
}

func (c validator) validString(s map[string]any, v string) bool {
	if !counted(s, utf8.RuneCountInString(v), "minLength", "maxLength") {
		return false
	}
	p, patterned := s["pattern"].(string)
	if patterned {
		ok, err := regexp2.MustCompile(p, regexp2.ECMAScript|regexp2.Unicode).MatchString(v)
		if err != nil || !ok {
			return false
		}
	}
	if f, ok := s["format"].(string); ok && !(patterned && c.lenient) && !formatted(f, v) {
		return false
	}
	return true
}

var (
	uuidForm     = regexp.MustCompile(`(?i)\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z`)
	labelForm    = regexp.MustCompile(`\A[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\z`)
	durationForm = regexp.MustCompile(`\AP(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?)\z`)
)

func formatted(format, v string) bool {
	switch format {
	case "date":
		_, err := time.Parse(time.DateOnly, v)
		return err == nil
	case "time":
		_, err := time.Parse(time.RFC3339Nano, "2000-01-01T"+v)
		return err == nil
	case "date-time":
		_, err := time.Parse(time.RFC3339Nano, v)
		return err == nil
	case "uuid":
		return uuidForm.MatchString(v)
	case "ipv4", "ipv6":
		a, err := netip.ParseAddr(v)
		return err == nil && a.Is4() == (format == "ipv4") && a.Zone() == ""
	case "email":
		a, err := mail.ParseAddress(v)
		return err == nil && a.Address == v
	case "hostname":
		for _, label := range strings.Split(v, ".") {
			if len(label) > 63 || !labelForm.MatchString(label) {
				return false
			}
		}
		return len(v) <= 253
	case "uri":
		u, err := url.Parse(v)
		return err == nil && u.Scheme != "" && !strings.ContainsAny(v, " \"<>\\^`{|}")
	case "duration":
		return durationForm.MatchString(v) && v != "P" && !strings.HasSuffix(v, "T")
	}
	return true
}

func (c validator) validArray(s map[string]any, v []any) bool {
	if !counted(s, len(v), "minItems", "maxItems") {
		return false
	}
	first, rest := listOf(s["prefixItems"]), s["items"]
	if l := listOf(rest); l != nil {
		first, rest = l, s["additionalItems"]
	}
	for i, e := range v {
		if i < len(first) {
			if !c.valid(first[i], e) {
				return false
			}
		} else if rest != nil && !c.valid(rest, e) {
			return false
		}
	}
	return true
}

func (c validator) validObject(s map[string]any, v map[string]any) bool {
	if !counted(s, len(v), "minProperties", "maxProperties") {
		return false
	}
	for _, name := range listOf(s["required"]) {
		if _, ok := v[name.(string)]; !ok {
			return false
		}
	}
	declared, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	for name, e := range v {
		known := false
		if sub, ok := declared[name]; ok {
			known = true
			if !c.valid(sub, e) {
				return false
			}
		}
		for p, sub := range patterns {
			if ok, _ := regexp2.MustCompile(p, regexp2.ECMAScript|regexp2.Unicode).MatchString(name); ok {
				known = true
				if !c.valid(sub, e) {
					return false
				}
			}
		}
		if other, ok := s["additionalProperties"]; ok && !known && !c.valid(other, e) {
			return false
		}
	}
	return true
}
