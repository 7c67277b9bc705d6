package jsonschema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestErrors checks that errors name the refused keyword and its place.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		schema, pointer, keyword string
		err                      error
	}{
		{`{"not":{"type":"null"}}`, "", "not", ErrUnsupported},
		{`{"type":"object","properties":{"a/b":{"not":{}}}}`, "/properties/a~1b", "not", ErrUnsupported},
		{`{"if":{"type":"null"},"then":{"const":1}}`, "", "if", ErrUnsupported},
		{`{"type":"array","uniqueItems":true}`, "", "uniqueItems", ErrUnsupported},
		{`{"type":"array","items":{"type":"array","contains":{"const":1}}}`, "/items", "contains", ErrUnsupported},
		{`{"type":"array","unevaluatedItems":false}`, "", "unevaluatedItems", ErrUnsupported},
		{`{"type":"object","unevaluatedProperties":false}`, "", "unevaluatedProperties", ErrUnsupported},
		{`{"type":"object","propertyNames":{"maxLength":3}}`, "", "propertyNames", ErrUnsupported},
		{`{"type":"object","dependentRequired":{"a":["b"]}}`, "", "dependentRequired", ErrUnsupported},
		{`{"type":"object","dependentSchemas":{"a":false}}`, "", "dependentSchemas", ErrUnsupported},
		{`{"type":"object","dependencies":{"a":["b"]}}`, "", "dependencies", ErrUnsupported},
		{`{"type":"object","patternProperties":{"a":{}},"properties":{"b":{}}}`, "", "patternProperties", ErrUnsupported},
		{`{"type":"object","patternProperties":{"a":{}},"additionalProperties":{}}`, "", "patternProperties", ErrUnsupported},
		{`{"type":"object","properties":{"a":{},"b":{}},"maxProperties":1}`, "", "maxProperties", ErrUnsupported},
		{`{"type":"object","properties":{"a":{},"b":{}},"minProperties":2}`, "", "minProperties", ErrUnsupported},
		{`{"$dynamicRef":"#a"}`, "", "$dynamicRef", ErrUnsupported},
		{`{"$recursiveRef":"#"}`, "", "$recursiveRef", ErrUnsupported},
		{`{"anyOf":[{},{"$ref":"other.json#/a"}]}`, "/anyOf/1", "$ref", ErrUnsupported},
		{`{"$ref":"#anchor"}`, "", "$ref", ErrUnsupported},
		{`{"items":{"$id":"http://x/","items":{"$ref":"#/a"}}}`, "/items/items", "$ref", ErrUnsupported},
		{`{"type":"number","multipleOf":0.5}`, "", "multipleOf", ErrUnsupported},
		{`{"type":"integer","multipleOf":10}`, "", "multipleOf", ErrUnsupported},
		{`{"type":"string","pattern":"(?=a)"}`, "", "pattern", ErrUnsupported},
		{`{"type":"string","pattern":"(a)\\1"}`, "", "pattern", ErrUnsupported},
		{`{"type":"string","pattern":"\\bx"}`, "", "pattern", ErrUnsupported},
		{`{"type":"string","pattern":"(?i:a)"}`, "", "pattern", ErrUnsupported},
		{`{"type":"string","pattern":"(^a|b)*"}`, "", "pattern", ErrUnsupported},
		{`{"type":"string","pattern":"\\p{Emoji}"}`, "", "pattern", ErrUnsupported},
		{`{"type":"string","pattern":"[A-Z]","minLength":8}`, "", "pattern", ErrUnsupported},
		{`{"allOf":[{"pattern":"a"},{"pattern":"b"}]}`, "/allOf/1", "pattern", ErrUnsupported},
		{`{"enum":["a"],"pattern":"a"}`, "", "pattern", ErrUnsupported},
		{`{"const":{},"properties":{"a":{}}}`, "", "properties", ErrUnsupported},

		{`{`, "", "", ErrSchema},
		{`{} {}`, "", "", ErrSchema},
		{``, "", "", ErrSchema},
		{"\"\xff\"", "", "", ErrSchema},
		{`7`, "", "", ErrSchema},
		{`{"items":7}`, "/items", "", ErrSchema},
		{`false`, "", "", ErrSchema},
		{`{"a":1,"a":1}`, "", "", ErrSchema},
		{`{"type":"int"}`, "", "type", ErrSchema},
		{`{"type":[]}`, "", "type", ErrSchema},
		{`{"enum":1}`, "", "enum", ErrSchema},
		{`{"type":"string","enum":[1]}`, "", "", ErrSchema},
		{`{"anyOf":[]}`, "", "anyOf", ErrSchema},
		{`{"allOf":{}}`, "", "allOf", ErrSchema},
		{`{"minimum":"1"}`, "", "minimum", ErrSchema},
		{`{"multipleOf":0}`, "", "multipleOf", ErrSchema},
		{`{"minimum":2,"maximum":1}`, "", "", ErrSchema},
		{`{"minLength":-1}`, "", "minLength", ErrSchema},
		{`{"maxLength":1.5}`, "", "maxLength", ErrSchema},
		{`{"minLength":2,"maxLength":1}`, "", "", ErrSchema},
		{`{"pattern":1}`, "", "pattern", ErrSchema},
		{`{"pattern":"("}`, "", "pattern", ErrSchema},
		{`{"pattern":")"}`, "", "pattern", ErrSchema},
		{`{"pattern":"["}`, "", "pattern", ErrSchema},
		{`{"pattern":"a**"}`, "", "pattern", ErrSchema},
		{`{"pattern":"[b-a]"}`, "", "pattern", ErrSchema},
		{`{"pattern":"a{2,1}"}`, "", "pattern", ErrSchema},
		{`{"pattern":"\\y"}`, "", "pattern", ErrSchema},
		{`{"pattern":"a^b"}`, "", "", ErrSchema},
		{`{"properties":[]}`, "", "properties", ErrSchema},
		{`{"required":["a"],"properties":{"a":false}}`, "", "", ErrSchema},
		{`{"required":["a"],"additionalProperties":false}`, "", "", ErrSchema},
		{`{"required":[1]}`, "", "required", ErrSchema},
		{`{"prefixItems":{}}`, "", "prefixItems", ErrSchema},
		{`{"items":false,"minItems":1}`, "", "", ErrSchema},
		{`{"$ref":1}`, "", "$ref", ErrSchema},
		{`{"$ref":"#/a"}`, "", "$ref", ErrSchema},
		{`{"$ref":"#/%4"}`, "", "$ref", ErrSchema},
		{`{"$ref":"#"}`, "", "$ref", ErrSchema},
		{`{"$ref":"#/a","a":{"$ref":"#"}}`, "", "$ref", ErrSchema},
		{`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`, "", "$ref", ErrSchema},
		{`{"type":"object","allOf":[{"$ref":"#"}]}`, "", "$ref", ErrSchema},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "", "", ErrSchema},

		{`{"minimum":1e999}`, "", "minimum", ErrLimit},
		{`{"enum":[1e999]}`, "/enum/0", "", ErrLimit},
		{`{"minLength":1e20}`, "", "minLength", ErrLimit},
	} {
		_, err := Rules([]byte(c.schema), Config{})
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, c.err) || e.Keyword != c.keyword || e.Pointer != c.pointer {
			t.Errorf("%s: %v", c.schema, err)
		}
	}
}

// TestExcludedTypes checks that unsupported keywords are ignored if the types that they apply to
// are excluded.
func TestExcludedTypes(t *testing.T) {
	for _, schema := range []string{
		`{"type":"string","uniqueItems":true,"contains":{},"propertyNames":false,"multipleOf":7}`,
		`{"type":"array","pattern":"(?=a)","multipleOf":7}`,
		`{"enum":[1],"pattern":"(?=a)"}`,
		`{"type":"array","uniqueItems":false,"unevaluatedItems":true}`,
		`{"type":"object","patternProperties":{},"dependentRequired":{},"propertyNames":{}}`,
		`{"if":{"type":"null"}}`,
		`{"maxLength":1e20,"minItems":0.0}`,
	} {
		if _, err := Rules([]byte(schema), Config{}); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func nested(n int) string {
	return strings.Repeat(`{"items":`, n) + "{}" + strings.Repeat("}", n)
}

func objectOf(n int, required bool) string {
	var names, must []string
	for i := range n {
		names = append(names, fmt.Sprintf(`"p%d":{"type":"array","items":{"enum":["a","b"]},"minItems":1}`, i))
		if required {
			must = append(must, fmt.Sprintf(`"p%d"`, i))
		}
	}
	return `{"properties":{` + strings.Join(names, ",") + `},"required":[` + strings.Join(must, ",") + `]}`
}

// TestLimits tests at each limit and one above it.
func TestLimits(t *testing.T) {
	cfg := Config{MaxBytes: 4000, MaxDepth: 10, MaxValues: 300, MaxMembers: 20, MaxAlternatives: 9, MaxSize: 2000}
	many := func(n int) string { return `{"enum":[` + strings.Repeat("7,", n-1) + `7]}` }
	product := func(n int) string {
		two := `{"anyOf":[{"type":"integer"},{"type":"null"},{"minimum":1}]}`
		return `{"allOf":[` + strings.Repeat(two+",", n-1) + two + `]}`
	}
	for _, c := range []struct {
		name      string
		fits, not string
	}{
		{"MaxBytes", "{}" + strings.Repeat(" ", 3998), "{}" + strings.Repeat(" ", 3999)},
		{"MaxDepth", nested(9), nested(10)},
		{"MaxValues", many(298), many(299)},
		{"MaxMembers", objectOf(20, false), objectOf(21, false)},
		{"MaxMembers of arrays", `{"prefixItems":[` + strings.Repeat("true,", 19) + `true]}`, `{"prefixItems":[` + strings.Repeat("true,", 20) + `true]}`},
		{"MaxAlternatives", product(2), product(3)},
	} {
		if _, err := Rules([]byte(c.fits), cfg); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := Rules([]byte(c.not), cfg); !errors.Is(err, ErrLimit) {
			t.Errorf("%s, one above: %v", c.name, err)
		}
	}
	if err := (Config{MaxDepth: -1, FractionDigits: 401}).Validate(); err == nil || !strings.Contains(err.Error(), "MaxDepth") || !strings.Contains(err.Error(), "401") {
		t.Errorf("a faulty Config: %v", err)
	}
}

// TestLarge checks that large and hostile schemas give rules of linear size, or an error.
func TestLarge(t *testing.T) {
	size := func(schema string) int {
		rules, err := Rules([]byte(schema), Config{})
		if err != nil {
			t.Fatalf("%.80s: %v", schema, err)
		}
		if err := rules.Validate(); err != nil {
			t.Fatalf("%.80s: %v", schema, err)
		}
		n := 0
		for _, r := range rules {
			n += cost(r, 1<<30)
		}
		return n
	}
	for _, required := range []bool{false, true} {
		if a, b := size(objectOf(100, required)), size(objectOf(1000, required)); b > 11*a {
			t.Errorf("100 properties take %d expressions, 1000 %d", a, b)
		}
	}
	var chain, wide []string
	for i := range 3000 {
		chain = append(chain, fmt.Sprintf(`"d%d":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/d%d"}]}`, i, i+1))
	}
	for i := range 25 {
		wide = append(wide, fmt.Sprintf(`"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}}`, i, i+1, i+1))
	}
	size(`{"$ref":"#/$defs/d0","$defs":{` + strings.Join(chain, ",") + `,"d3000":{"type":"array"}}}`)
	if n := size(`{"$ref":"#/$defs/d0","$defs":{` + strings.Join(wide, ",") + `,"d25":true}}`); n > 5000 {
		t.Errorf("2^25 paths take %d expressions", n)
	}
	var subsets []string // conjunctions that grow: all subsets of 20 schemas
	for i := range 20 {
		subsets = append(subsets, fmt.Sprintf(`"s%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/s%d"},"b":{"allOf":[{"$ref":"#/$defs/s%d"},{"$ref":"#/$defs/s%d"}]}}}`, i, (i+1)%20, (i*7+3)%20, (i*3+1)%20))
	}
	for _, hostile := range []string{
		nested(100_000),
		strings.Repeat("[", 100_000),
		strings.Repeat(`{"allOf":[`, 40) + strings.Repeat(`]}`, 40),
		`{"title":"` + strings.Repeat("x", 10<<20) + `"}`,
		`{"type":"string","pattern":"` + strings.Repeat("(", 50_000) + strings.Repeat(")", 50_000) + `"}`,
		`{"type":"string","pattern":"` + strings.Repeat(`\\p{L}`, 50_000) + `"}`,
		`{"type":"string","pattern":"(^|a)` + strings.Repeat("(^a|b|c)", 50) + `"}`,
		`{"properties":{"` + strings.Repeat("x", 50_000) + `":true},"additionalProperties":true}`,
		`{"$ref":"#/$defs/s0","$defs":{` + strings.Join(subsets, ",") + `}}`,
		`{"minimum":1e-999999999}`,
	} {
		if rules, err := Rules([]byte(hostile), Config{}); err == nil {
			if err := rules.Validate(); err != nil {
				t.Errorf("%.60s: %v", hostile, err)
			}
		} else if e := (*Error)(nil); !errors.As(err, &e) {
			t.Errorf("%.60s: %v", hostile, err)
		}
	}
}
