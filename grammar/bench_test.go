package grammar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// largeTokens returns a vocabulary like published ones of 128,000 tokens: bytes, words with and
// without a leading space, runs of spaces, digits, and groups of punctuation from code and JSON.
func largeTokens() []string {
	r := rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	var tokens []string
	add := func(s string) {
		if !seen[s] {
			seen[s] = true
			tokens = append(tokens, s)
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for n := 1; n <= 128; n++ {
		add(strings.Repeat(" ", n))
		if n < 40 {
			add("\n" + strings.Repeat(" ", n))
			add("\n" + strings.Repeat("\t", n))
			add(strings.Repeat("=", n))
		}
	}
	for n := range 1000 {
		add(string([]byte{byte('0' + n/100), byte('0' + n/10%10), byte('0' + n%10)}))
	}
	marks := []string{"\"", ",", ":", "{", "}", "[", "]", "(", ")", ";", "'", ".", "\\", "\n", " ", "/", "<", ">", "="}
	for range 6000 {
		s := ""
		for range 2 + r.IntN(3) {
			s += marks[r.IntN(len(marks))]
		}
		add(s)
	}
	letters := "eeeeetttaaooiinnsshhrrddlucmfwypvbgkqjxz"
	foreign := []rune("абвгдежзиклмнопрстуエオカキ的一是不了人我在有他éèüöß")
	for len(tokens) < 128000 {
		s := ""
		if r.IntN(12) == 0 {
			for range 1 + r.IntN(4) {
				s += string(foreign[r.IntN(len(foreign))])
			}
		} else {
			for range 1 + r.IntN(4) + r.IntN(7) {
				s += string(letters[r.IntN(len(letters))])
			}
		}
		switch r.IntN(20) {
		case 0, 1, 2, 3, 4, 5, 6, 7, 8:
			s = " " + s
		case 9:
			s = strings.ToUpper(s[:1]) + s[1:]
		case 10:
			s = marks[r.IntN(len(marks))] + s
		case 11:
			s += marks[r.IntN(len(marks))]
		}
		add(s)
	}
	return tokens
}

var large *Vocabulary

func largeVocabulary() *Vocabulary {
	if large == nil {
		large = vocabularyOf(largeTokens())
	}
	return large
}

// Short constructors for rules written by hand.

func lit(s string) *Expr            { return &Expr{Op: Text, Text: s} }
func seq(e ...*Expr) *Expr          { return &Expr{Op: Seq, Sub: e} }
func either(e ...*Expr) *Expr       { return &Expr{Op: Either, Sub: e} }
func times(e *Expr, n, m int) *Expr { return &Expr{Op: Repeat, Sub: []*Expr{e}, Min: n, Max: m} }
func star(e *Expr) *Expr            { return times(e, 0, Unlimited) }
func ref(rule int) *Expr            { return &Expr{Op: Call, Rule: rule} }
func runes(r ...rune) *Expr {
	e := &Expr{Op: Runes}
	for i := 0; i < len(r); i += 2 {
		e.Runes = append(e.Runes, Range{Lo: r[i], Hi: r[i+1]})
	}
	return e
}

func jsonChar() *Expr {
	hex := runes('0', '9', 'a', 'f', 'A', 'F')
	return either(runes(0x20, '!', '#', '[', ']', 0x10ffff),
		seq(lit("\\"), either(runes('"', '"', '\\', '\\', '/', '/', 'b', 'b', 'f', 'f', 'n', 'n', 'r', 'r', 't', 't'),
			seq(lit("u"), hex, hex, hex, hex))))
}

func jsonString() *Expr { return seq(lit("\""), star(jsonChar()), lit("\"")) }

func jsonNumber() *Expr {
	digit := runes('0', '9')
	return seq(times(lit("-"), 0, 1), either(lit("0"), seq(runes('1', '9'), star(digit))),
		times(seq(lit("."), digit, star(digit)), 0, 1),
		times(seq(runes('e', 'e', 'E', 'E'), times(runes('+', '+', '-', '-'), 0, 1), digit, star(digit)), 0, 1))
}

func space() *Expr { return times(runes(' ', ' ', '\n', '\n', '\t', '\t'), 0, 20) }

// jsonRules matches any JSON text.
func jsonRules() Rules {
	sp, comma := space(), seq(lit(","), space())
	member := seq(ref(3), sp, lit(":"), sp, ref(0))
	return Rules{
		either(ref(1), ref(2), ref(3), jsonNumber(), lit("true"), lit("false"), lit("null")),
		seq(lit("{"), sp, times(seq(member, sp, star(seq(comma, member, sp))), 0, 1), lit("}")),
		seq(lit("["), sp, times(seq(ref(0), sp, star(seq(comma, ref(0), sp))), 0, 1), lit("]")),
		jsonString(),
	}
}

// toolRules matches a tool call with ten properties in order, one of them an object and one an
// array of objects.
func toolRules(longest int) Rules {
	text := jsonString()
	if longest > 0 {
		text = seq(lit("\""), times(jsonChar(), 0, longest), lit("\""))
	}
	sp := space()
	object := func(members ...*Expr) *Expr {
		e := []*Expr{lit("{"), sp}
		for i := 0; i < len(members); i += 2 {
			if i > 0 {
				e = append(e, lit(","), sp)
			}
			e = append(e, members[i], lit(":"), sp, members[i+1], sp)
		}
		return seq(append(e, lit("}"))...)
	}
	key := func(s string) *Expr { return lit("\"" + s + "\"") }
	unit := either(key("celsius"), key("fahrenheit"), key("kelvin"))
	place := object(key("latitude"), jsonNumber(), key("longitude"), jsonNumber(), key("name"), text)
	list := seq(lit("["), sp, times(seq(place, sp, star(seq(lit(","), sp, place, sp))), 0, 1), lit("]"))
	return Rules{object(
		key("name"), key("get_forecast"), key("city"), text, key("country"), text, key("days"), jsonNumber(),
		key("unit"), unit, key("hourly"), either(lit("true"), lit("false")), key("note"), text,
		key("home"), place, key("stops"), list, key("language"), either(key("en"), key("de"), key("fr"), key("it")),
	)}
}

const toolText = `{"name": "get_forecast", "city": "Sankt Peter-Ording", "country": "de", "days": 7, "unit": "celsius",` +
	` "hourly": true, "note": "with \"tides\", and \u00fc", "home": {"latitude": 54.3, "longitude": 8.65, "name": "the house"},` +
	` "stops": [{"latitude": 1, "longitude": -2e10, "name": ""}, {"latitude": 0.5, "longitude": 9, "name": "b"}], "language": "fr"}`

// split cuts text into tokens from the left, taking the longest token each time.
func split(v *Vocabulary, text string) (tokens []kv.Token) {
	known := map[string]kv.Token{}
	for t := range v.Size() {
		known[string(v.Bytes(kv.Token(t)))] = kv.Token(t)
	}
	for len(text) > 0 {
		for n := min(len(text), 12); n > 0; n-- {
			if t, ok := known[text[:n]]; ok {
				tokens = append(tokens, t)
				text = text[n:]
				break
			}
		}
	}
	return tokens
}

func mustCompile(t testing.TB, v *Vocabulary, rules Rules) *Grammar {
	t.Helper()
	g, err := compile(v, rules, Limits{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestToolCallIsAccepted(t *testing.T) {
	v := largeVocabulary()
	mask := make([]uint64, v.words())
	for _, longest := range []int{0, 40, 10000} {
		g := mustCompile(t, v, toolRules(longest))
		m := g.NewMatcher()
		most := 0
		for _, token := range split(v, toolText) {
			m.Mask(mask)
			if !has(mask, int(token)) || m.CanEnd() || !m.Accept(token) {
				t.Fatalf("%q is not allowed", v.Bytes(token))
			}
			most = max(most, len(m.set))
		}
		if !m.CanEnd() || !m.MustEnd() {
			t.Fatal("not complete")
		}
		// A counting string may end after each rune, so there is its frame and its caller's.
		if most > min(longest, 1)+1 {
			t.Errorf("%d stacks side by side, longest string %d", most, longest)
		}
	}
}

func BenchmarkVocabulary(b *testing.B) {
	tokens := largeTokens()
	for b.Loop() {
		vocabularyOf(tokens)
	}
}

func BenchmarkCompile(b *testing.B) {
	v := largeVocabulary()
	regexp := func(s string) Rules {
		rules, err := ParseRegexp(s)
		if err != nil {
			b.Fatal(err)
		}
		return rules
	}
	for _, x := range []struct {
		name  string
		rules Rules
	}{
		{"json", jsonRules()}, {"tool", toolRules(0)}, {"tool-40", toolRules(40)}, {"tool-10000", toolRules(10000)},
		{"date", regexp(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?Z`)}, {"mail", regexp(`[\w.+-]{1,64}@(\w+\.)+[a-z]{2,}`)},
		{"words", regexp(`(\p{L}+ ){3,200}\p{L}+\.`)},
	} {
		b.Run("rules="+x.name, func(b *testing.B) {
			var g *Grammar
			for b.Loop() {
				g = mustCompile(b, v, x.rules)
			}
			bytes := 0
			for i := range g.locals {
				l := &g.locals[i]
				bytes += (len(l.bits)*(1+len(l.upTo)))*8 + len(l.tokens)*4 + len(l.exits)*12 + len(l.late)*8
			}
			b.ReportMetric(float64(len(g.nodes)), "nodes")
			b.ReportMetric(float64(bytes)/1024, "KiB")
		})
	}
}

func BenchmarkMask(b *testing.B) {
	v := largeVocabulary()
	for _, memoised := range []string{"yes", "no"} {
		for _, longest := range []int{0, 40} {
			name := map[int]string{0: "tool", 40: "tool-40"}[longest]
			b.Run("memoised="+memoised+"/rules="+name, func(b *testing.B) {
				g := mustCompile(b, v, toolRules(longest))
				m := g.NewMatcher()
				mask := make([]uint64, v.words())
				tokens := split(v, toolText)
				n := 0
				var slowest time.Duration
				for b.Loop() {
					if n%len(tokens) == 0 {
						m.Reset()
					}
					if memoised == "no" {
						b.StopTimer()
						for i := range g.memo.slots {
							g.memo.slots[i].used = 0
						}
						b.StartTimer()
						begin := time.Now()
						m.Mask(mask)
						slowest = max(slowest, time.Since(begin))
					} else {
						m.Mask(mask)
					}
					m.Accept(tokens[n%len(tokens)])
					n++
				}
				if memoised == "no" {
					b.ReportMetric(float64(slowest.Microseconds()), "slowest-µs")
				}
			})
		}
	}
}

// BenchmarkHardMask makes masks of ambiguous rules by walks of the whole vocabulary, after some
// letters of output.
func BenchmarkHardMask(b *testing.B) {
	v := largeVocabulary()
	for _, pattern := range []string{`([a-z]{0,40}[b-z]{0,40}){1,10}`, `([A-Za-z0-9 ,.]{1,80}\.? ?){1,8}`} {
		b.Run("regexp="+pattern, func(b *testing.B) {
			rules, err := ParseRegexp(pattern)
			if err != nil {
				b.Fatal(err)
			}
			g := mustCompile(b, v, rules)
			m := g.NewMatcher()
			mask := make([]uint64, v.words())
			for i := 0; b.Loop(); i++ {
				if i%20 == 0 {
					m.Reset()
				}
				m.Mask(mask)
				m.AcceptBytes([]byte("b"))
			}
		})
	}
}

func BenchmarkAccept(b *testing.B) {
	v := largeVocabulary()
	g := mustCompile(b, v, toolRules(0))
	m := g.NewMatcher()
	tokens := split(v, toolText)
	n := 0
	for b.Loop() {
		if n%len(tokens) == 0 {
			m.Reset()
		}
		if !m.Accept(tokens[n%len(tokens)]) {
			b.Fatal("not allowed")
		}
		n++
	}
}

// BenchmarkLateMask makes a mask near the end of a count, where thousands of tokens of the unit
// have become too long.
func BenchmarkLateMask(b *testing.B) {
	for _, n := range []int{1000, 2000, 3900} {
		b.Run(fmt.Sprintf("tokens=%d", n), func(b *testing.B) {
			tokens := append([]string(nil), byteTokens...)
			for i := range n {
				tokens = append(tokens, fmt.Sprintf("%c%c%c", 'A'+i%26, 'A'+i/26%26, 'A'+i/676))
			}
			for len(tokens) < 128_000 {
				tokens = append(tokens, fmt.Sprint("x", len(tokens)))
			}
			v := vocabularyOf(tokens)
			m := mustCompile(b, v, Rules{times(runes('A', 'Z'), 0, 500)}).NewMatcher()
			for range 498 {
				m.AcceptBytes([]byte("A"))
			}
			mask := make([]uint64, v.words())
			for b.Loop() {
				m.Mask(mask)
			}
			for t := range tokens {
				if short := len(tokens[t]) <= 2 && 'A' <= tokens[t][0] && tokens[t][0] <= 'Z'; short != has(mask, t) {
					b.Fatalf("token %q: %v", tokens[t], !short)
				}
			}
		})
	}
}
