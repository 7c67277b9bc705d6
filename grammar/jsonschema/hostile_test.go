package jsonschema

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

func each(n int, f func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = f(i)
	}
	return strings.Join(all, ",")
}

// TestMemoryIsInProportionToTheSchema bounds the total of allocated bytes, which also bounds
// most of the work. A schema that is applied many times must not cost its whole size each time.
func TestMemoryIsInProportionToTheSchema(t *testing.T) {
	numbers := func(from int) func(int) string { return func(i int) string { return fmt.Sprint(from + i) } }
	refs := func(to string) func(int) string { return func(int) string { return `{"$ref":"#/` + to + `"}` } }
	long := func(n int) string { return strings.Repeat("x", 20_000*n) }
	for name, schema := range map[string]func(n int) string{
		"an enum meets many": func(n int) string {
			return `{"enum":[` + each(1000*n, numbers(0)) + `],"anyOf":[` + each(2*n, func(i int) string {
				return `{"enum":[` + each(500, numbers(1_000_000+1000*i)) + `]}`
			}) + `]}`
		},
		"required, often": func(n int) string {
			return `{"type":"object","allOf":[` + each(1000*n, refs("r")) + `],"r":{"required":[` + each(2000*n, func(i int) string { return fmt.Sprintf(`"n%d"`, i) }) + `]}}`
		},
		"one literal in many places": func(n int) string {
			return `{"anyOf":[` + each(100*n, func(i int) string {
				return fmt.Sprintf(`{"allOf":[{"$ref":"#/e"},{"minLength":%d}]}`, i)
			}) + `],"e":{"enum":[[` + each(1000*n, numbers(0)) + `]]}}`
		},
		"bounds of many digits": func(n int) string {
			return `{"anyOf":[` + each(500*n, func(i int) string {
				return fmt.Sprintf(`{"minimum":-%d345678901234567.12345678901234567891,"maximum":12345678901234567890.12345678901234567891}`, 100+i)
			}) + `]}`
		},
		"a long $ref, often": func(n int) string {
			return `{"allOf":[` + each(1000*n, refs("a")) + `],"a":{"$ref":"#/` + long(n) + `"},"` + long(n) + `":{"type":"null"}}`
		},
		"refused under a long name": func(n int) string {
			return `{"type":"null","allOf":[` + each(1000*n, refs("a")) + `],"a":{"$ref":"#/` + long(n) + `/y"},"` + long(n) + `":{"y":{"contains":{},"minLength":0}}}`
		},
		"an anyOf after another": func(n int) string {
			return `{"allOf":[` + each(8000*n, func(int) string { return `{"anyOf":[{"properties":{}}]}` }) + `]}`
		},
		"anchors in sequence": func(n int) string {
			return `{"type":"string","pattern":"b` + strings.Repeat("(^|b)", 9000*n) + `"}`
		},
		"one part in many ways": func(n int) string {
			return `{"type":"string","pattern":"(^a` + strings.Repeat("|^b", 60) + `)` + strings.Repeat(`\\n?`, 5000*n) + `"}`
		},
	} {
		for n := 1; n <= 2; n++ {
			s := []byte(schema(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Rules(s, Config{})
			runtime.ReadMemStats(&after)
			// A kilobyte per byte of the schema, plus room for rules of MaxSize.
			if used, most := after.TotalAlloc-before.TotalAlloc, uint64(1000*len(s)+40<<20); used > most {
				t.Errorf("%s: a schema of %d bytes takes %d, over %d", name, len(s), used, most)
			}
			if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
			} else if len(fmt.Sprint(err)) > 2000 {
				t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
			}
		}
	}
}

func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("\\u0001", 10_000)
	for _, schema := range []string{
		`{"$ref":"` + long + `"}`, `{"$ref":"#` + long + `"}`, `{"$ref":"#/` + long + `"}`, `{"$ref":"#/%` + long + `"}`,
		`{"` + long + `":1,"` + long + `":2}`, `{"multipleOf":7` + strings.Repeat("0", 700) + `}`,
		`{"allOf":[{"$ref":"#/` + long + `"}],"` + long + `":{"not":{}}}`,
		`{"pattern":"a{` + strings.Repeat("9", 10_000) + `}"}`, `{"pattern":"\\p{` + long + `}"}`,
		`{"pattern":"a{` + strings.Repeat("0", 10_000) + `2,1}"}`,
	} {
		if _, err := Rules([]byte(schema), Config{}); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.50s: an error of %d bytes", schema, len(fmt.Sprint(err)))
		}
	}
}

// TestKeysOfEqualValues compares keys with a comparison of the values.
func TestKeysOfEqualValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	literal := func() string {
		s := []string{"", "-"}[random.IntN(2)] + []string{"0", "1", "10", "100", "12", "120"}[random.IntN(6)]
		s += []string{"", ".0", ".5", ".50", ".05", ".00"}[random.IntN(6)]
		return s + []string{"", "e0", "E1", "e+2", "e-1", "e-02"}[random.IntN(6)]
	}
	for range 20_000 {
		a, b := literal(), literal()
		x, _ := rational(a)
		y, _ := rational(b)
		if (x.Cmp(y) == 0) != (plainNumber(a) == plainNumber(b)) {
			t.Fatalf("%s is %s, %s is %s", a, plainNumber(a), b, plainNumber(b))
		}
	}
	classes := [][]string{
		{`null`}, {`true`}, {`false`}, {`"1"`}, {`1`, `1.0`, `10e-1`}, {`""`}, {`[]`}, {`{}`}, {`[[]]`}, {`[1,2]`, `[1.0,2e0]`}, {`[2,1]`}, {`["1,2"]`}, {`["1","2"]`}, {`[12]`},
		{`{"a":1,"b":[2]}`, `{"b":[2.0],"a":1}`}, {`{"a":[2],"b":1}`}, {`{"a":{"b":1}}`}, {`{"a":{},"b":1}`}, {`1e99999999999999999999`},
	}
	seen := map[string]int{}
	for i, class := range classes {
		for _, text := range class {
			v := decode([]byte(text), Config{}.WithDefaults())
			if of, ok := seen[v.key()]; ok && of != i {
				t.Errorf("%s has the key of %s: %s", text, classes[of][0], v.key())
			} else if !ok && text != class[0] {
				t.Errorf("%s has another key than %s: %s", text, class[0], v.key())
			}
			seen[v.key()] = i
		}
	}
}
