package jsonschema

import (
	"encoding/json"
	"math/rand"
	"testing"
	"unicode/utf8"
)

// emitted holds schemas for random texts, in addition to those of golden.json.
var emitted = []string{
	`{"type":"number","minimum":-3.75,"maximum":12.5}`,
	`{"type":"number","exclusiveMinimum":-0.001,"exclusiveMaximum":0.0015}`,
	`{"type":"number","minimum":1e-3,"maximum":1e3}`,
	`{"type":"number","minimum":99.5}`,
	`{"type":"number","exclusiveMaximum":-7.25}`,
	`{"type":"number","multipleOf":0.01}`,
	`{"type":"number","multipleOf":0.01,"minimum":0,"maximum":9.995}`,
	`{"type":"integer","minimum":-1234,"maximum":98765}`,
	`{"type":"integer","minimum":1999,"maximum":2101}`,
	`{"type":"integer","exclusiveMinimum":-100000,"exclusiveMaximum":-99}`,
	`{"type":"string","pattern":"[A-Z]{2}[^\"\\\\]*\\s\\W$"}`,
	`{"type":"string","pattern":"^[\\x00-\\x1f\\\\\"/]{1,3}$"}`,
	`{"type":"string","pattern":"^\\p{Lu}\\p{L}*(\\.|\\u{1F600}|😁)$"}`,
	`{"type":"string","pattern":"^(\\+\\d{1,3} )?\\(?\\d{3}\\)?[ .-]\\d{3}[ .-]\\d{4}$|^none$"}`,
	`{"type":"string","pattern":"^[^]$|^[a-]b$"}`,
	`{"type":"string","pattern":"^(?<year>\\d{4})(-(?:0[1-9]|1[0-2]))??$"}`,
	`{"type":"string","format":"date","minLength":10}`,
	`{"type":"string","minLength":3,"maxLength":900}`,
	`{"type":"array","items":{"anyOf":[{"type":"array","items":{"type":"integer"},"minItems":1},{"enum":[[],{"a":[]}]}]},"maxItems":4}`,
	`{"type":"object","properties":{"a":{"$ref":"#/$defs/t"},"b":{"$ref":"#/$defs/t"},"c":{"$ref":"#/$defs/t"},"d":{"const":1}},"required":["d"],"additionalProperties":{"$ref":"#/$defs/t"},"$defs":{"t":{"type":["object","null"],"properties":{"x":{"$ref":"#"},"y":{"type":"number"}},"additionalProperties":false}}}`,
	`{"type":"object","properties":{"ab":{"type":"null"},"abc":{"type":"null"},"\u00e9\n":{"type":"null"}},"additionalProperties":{"type":"integer","minimum":0,"maximum":9}}`,
	`{"type":"object","properties":{"a":{"type":"null"}},"required":["b","a"],"additionalProperties":{"type":"boolean"}}`,
	`{"allOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/m"}],"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["v"]},"m":{"type":"object","properties":{"kids":{"items":{"$ref":"#/$defs/m"},"maxItems":2},"v":{"maximum":7}}}}}`,
	`{"type":"object","properties":{"op":{"enum":["+","-"]},"args":{"type":"array","prefixItems":[{"$ref":"#/$defs/e"},{"$ref":"#/$defs/e"}],"items":false,"minItems":2}},"required":["op","args"],"additionalProperties":false,"$defs":{"e":{"oneOf":[{"type":"number"},{"$ref":"#"}]}}}`,
	`{"type":"object","required":["a"],"minProperties":2,"anyOf":[{"properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["b"]},{"properties":{"a":{"const":"x"},"c":{}},"required":["c"]}]}`,
	`{"type":"array","items":{"$ref":"#/%24defs/a%20b"},"$defs":{"a b":{"type":"null"}}}`,
	`{"anyOf":[{"$ref":"#/$defs/loop"},{"type":"array","items":{"$ref":"#/$defs/loop"}},{"type":"object","properties":{"a":{"$ref":"#/$defs/loop"},"b":{"type":"integer"}},"required":["b"]}],"$defs":{"loop":{"type":"object","properties":{"a":{"$ref":"#/$defs/loop"}},"required":["a"],"additionalProperties":false}}}`,
	`{"type":["number","string","array"],"minimum":5,"maxLength":2,"maxItems":0}`,
}

// TestSound checks that every text that the rules match is JSON and valid.
func TestSound(t *testing.T) {
	schemas := emitted
	for _, c := range readGolden(t).Cases {
		schemas = append(schemas, c.Schema)
	}
	r := rand.New(rand.NewSource(3))
	for _, source := range schemas {
		for _, cfg := range []Config{{}, {Compact: true}, {AllowExtra: true, IntegerDigits: 19, FractionDigits: 2, ExponentDigits: 1}} {
			if cfg.AllowExtra && (source[0] != '{' || hasPatternProperties(source)) {
				continue // refused there
			}
			rules, err := Rules([]byte(source), cfg)
			if err != nil {
				t.Errorf("%s: %v", source, err)
				break
			}
			schema, err := parse(source)
			if err != nil {
				t.Fatal(err)
			}
			g := newEmitter(rules, r)
			for range 60 {
				checkEmitted(t, source, schema, g.text(r.Intn(200)))
			}
		}
	}
}

func hasPatternProperties(source string) bool {
	var s map[string]any
	return json.Unmarshal([]byte(source), &s) == nil && s["patternProperties"] != nil
}

func checkEmitted(t *testing.T, source string, schema any, text string) {
	t.Helper()
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		t.Fatalf("%s: writes %q, which is not JSON", source, text)
	}
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: writes %q: %v", source, text, err)
	}
	if !(validator{schema, true}).valid(schema, v) {
		t.Fatalf("%s: writes %q, which is not valid", source, text)
	}
}
