package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// inParts encodes text cut at places, ascending, and adds up the steps.
func inParts(t *testing.T, e *Encoder, text string, places, plain []int) (tokens []kv.Token, steps int) {
	t.Helper()
	lo := 0
	steps = Allowance(len(text))
	for _, hi := range append(slices.Clone(places), len(text)) {
		var own []int
		for _, at := range plain {
			if lo <= at && at < hi {
				own = append(own, at-lo)
			}
		}
		var err error
		if tokens, err = e.EncodeWith(tokens, text[lo:hi], Options{Inside: lo > 0, Steps: steps, Plain: own}); err != nil {
			t.Fatal(err)
		}
		lo, steps = hi, e.StepsLeft()
	}
	return tokens, steps
}

// checkCuts fails unless text is the sum of its parts, cut everywhere and cut at some places.
func checkCuts(t *testing.T, name string, e *Encoder, cuts *Cuts, rng *rand.Rand, text string, plain []int) {
	t.Helper()
	var places, some []int
	for at := 1; at < len(text); at++ {
		if at = cuts.Border(text, at, plain); at == len(text) {
			break
		}
		if places = append(places, at); rng.IntN(3) == 0 {
			some = append(some, at)
		}
	}
	want, err := e.EncodeWith(nil, text, Options{Plain: plain})
	whole := e.StepsLeft()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][]int{places, some} {
		got, steps := inParts(t, e, text, at, plain)
		if !slices.Equal(got, want) {
			for _, one := range at { // the first place that is to blame
				if got, _ := inParts(t, e, text, []int{one}, plain); !slices.Equal(got, want) {
					t.Fatalf("%s: %q | %q\n(plain %v) gives %v,\nwant %v", name, text[:one], text[one:], plain, got, want)
				}
			}
			t.Fatalf("%s: %q cut at %v gives %v,\nwant %v", name, text, at, got, want)
		}
		if steps != whole {
			t.Fatalf("%s: %q cut at %v leaves %d steps, want %d", name, text, at, steps, whole)
		}
	}
}

// oddAdded are added tokens beside which a text must not be cut everywhere.
const oddAdded = `[
{"id":ID0,"content":"<|fine|>","special":true},
{"id":ID1,"content":"<|left|>","special":true,"lstrip":true},
{"id":ID2,"content":"<|right|>","special":true,"rstrip":true},
{"id":ID3,"content":"<|single|>","special":true,"single_word":true},
{"id":ID4,"content":"a b","special":false},
{"id":ID5,"content":"c\n","special":false,"normalized":true},
{"id":ID6,"content":"wqrd","special":false},
{"id":ID7,"content":"zqz","special":false,"single_word":true},
{"id":ID8,"content":" ,","special":true,"normalized":true},
{"id":ID9,"content":"d e","special":true,"normalized":true}
]`

// withOdd returns the family's tokenizer with more added tokens.
func (f *families) withOdd(t testing.TB, of *family) *Tokenizer { return f.changed(t, of, nil) }

// changed is withOdd with other parts of the file.
func (f *families) changed(t testing.TB, of *family, parts map[string]string) *Tokenizer {
	t.Helper()
	var file map[string]json.RawMessage
	if err := json.Unmarshal(f.tokenizerJSON(t, of), &file); err != nil {
		t.Fatal(err)
	}
	odd := oddAdded
	for name, part := range parts {
		if name == "without" { // a flag of added tokens
			odd = strings.ReplaceAll(odd, part, "absent")
		} else {
			file[name] = json.RawMessage(part)
		}
	}
	size := f.open(t, of).VocabSize()
	for i := range 10 {
		odd = strings.ReplaceAll(odd, fmt.Sprintf("ID%d,", i), fmt.Sprintf("%d,", size+i))
	}
	added := strings.TrimSuffix(strings.TrimSpace(string(file["added_tokens"])), "]") + "," + odd[1:]
	file["added_tokens"] = json.RawMessage(added)
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := parse(data, nil)
	if err != nil {
		t.Fatalf("%s: %v", of.Name, err)
	}
	return tok
}

// borderText returns a random text with added tokens of tok in it, and some of their offsets as plain.
func borderText(rng *rand.Rand, tok *Tokenizer, names []string) (text string, plain []int) {
	var b strings.Builder
	for range 1 + rng.IntN(20) {
		switch rng.IntN(5) {
		case 0:
			b.WriteString([]string{"", "", "  ", " \n "}[rng.IntN(4)])
			if rng.IntN(3) == 0 {
				plain = append(plain, b.Len())
			}
			b.WriteString(names[rng.IntN(len(names))] + []string{"", "", "  ", " \n "}[rng.IntN(4)])
		case 1:
			b.WriteString([]string{"a b", "c\n", "\n  \n x", " ,", "d e", "wqrd", "zqz", "a zqz b", "\u0338", "\u0301", "e\u0301 ", " \u1100\u1161", "x 1 22 333 4444", "▁", " ▁▁", "ſ İ. İ K ", "ﬁ ", "don't  'll", "、。中文 ,"}[rng.IntN(19)])
		default:
			b.WriteString(randomText(rng, rng.IntN(12), true))
		}
	}
	if rng.IntN(2) == 0 {
		plain = nil
	}
	return b.String(), plain
}

func addedNames(tok *Tokenizer) (names []string) {
	for name := range tok.added {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The parts of a text give the tokens of the whole, in each family, with odd added tokens too.
func TestBordersOfFamilies(t *testing.T) {
	f := readFamilies(t)
	for i := range f.Families {
		of := &f.Families[i]
		for odd, tok := range []*Tokenizer{f.open(t, of), f.withOdd(t, of)} {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			e, cuts, names := tok.NewEncoder(), tok.NewCuts(), addedNames(tok)
			for i := odd; i < len(f.Texts); i += 3 {
				checkCuts(t, of.Name, e, cuts, rng, f.Texts[i], nil)
			}
			for range 80 {
				text, plain := borderText(rng, tok, names)
				checkCuts(t, of.Name, e, cuts, rng, text, plain)
			}
		}
	}
}

// The same with steps that no family has, or not by themselves.
func TestBordersOfSteps(t *testing.T) {
	const bytes = `{"type":"ByteLevel","add_prefix_space":false,"use_regex":%v}`
	parts := []map[string]string{
		{"normalizer": `{"type":"Lowercase"}`}, {"normalizer": `{"type":"NFKC"}`}, {"normalizer": `{"type":"Strip"}`},
		{"normalizer": `{"type":"Replace","pattern":{"Regex":"[aeiou ]{2,}"},"content":"q"}`},
		{"normalizer": `{"type":"Replace","pattern":{"String":" "},"content":"x y"}`},
		{"normalizer": `{"type":"Replace","pattern":{"String":"a"},"content":""}`},
		{"normalizer": `{"type":"Replace","pattern":{"String":"e "},"content":" e"}`},
		{"normalizer": `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"a"},{"type":"Replace","pattern":{"String":"the"},"content":" "},{"type":"NFC"}]}`},
	}
	for _, behavior := range []string{"Isolated", "MergedWithPrevious", "MergedWithNext", "Removed", "Contiguous"} {
		for _, pattern := range []string{`{"String":" "}`, `{"String":"e"}`, `{"String":" t"}`, `{"Regex":"\\s+"}`, `{"Regex":"\\s+(?!\\S)|\\p{L}+"}`, `{"Regex":"(?<=a) ?\\p{L}+|\\s"}`} {
			parts = append(parts, map[string]string{"pre_tokenizer": fmt.Sprintf(`{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":%s,"behavior":%q},`+bytes+`]}`,
				pattern, behavior, len(parts)%2 == 0)})
		}
	}
	f := readFamilies(t)
	for _, prepend := range []string{"first", "always", "never"} {
		parts = append(parts, map[string]string{"pre_tokenizer": fmt.Sprintf(`{"type":"Sequence","pretokenizers":[
			{"type":"Metaspace","replacement":"▁","prepend_scheme":%q,"split":false},{"type":"Digits","individual_digits":true}]}`, prepend)})
	}
	parts = append(parts, map[string]string{"without": "lstrip"}, map[string]string{"without": "rstrip"})
	for i, part := range parts {
		of := f.find(t, "llama3")
		if part["without"] != "" || strings.Contains(part["pre_tokenizer"], "Metaspace") {
			of = f.find(t, "mistral split") // texts split between two spaces
		}
		tok := f.changed(t, of, part)
		rng := rand.New(rand.NewPCG(8, uint64(i)))
		e, cuts, names := tok.NewEncoder(), tok.NewCuts(), addedNames(tok)
		for range 60 {
			text, plain := borderText(rng, tok, names)
			checkCuts(t, fmt.Sprint(part), e, cuts, rng, text, plain)
		}
	}
}

// TestBordersOfPairs lists pairs of runes between which texts of a family certainly split, and pairs
// between which they may not.
func TestBordersOfPairs(t *testing.T) {
	f := readFamilies(t)
	for _, tc := range []struct{ family, parted, not string }{
		{"llama3", "a | a.| a\n| 中\n| a。| 9a| a\u0301", " a| \n | ..| \n\n| 'l| 99| 中中| .\n| 。、| \xffa"},
		{"qwen2", "a | a.| a\n| 99| 9 ", " a| ..| a\u0301| \u0301 "},
		{"gpt2", "a | a.| a\n| 9a| .\n| a'", " a| 99| \n\n| 's| \n "},
		{"gpt2 spaced", "a | 9 | . ", "a.| a\n| 9a| \n "},
		{"o200k", "a | a.| a\n| 9 | aB", "Ba| a'| 99| /\n"},
		{"tekken", "a | a.| a\n| 99| a'", "Ba| /\n"},
		{"llama3 punctuated", "a | a\n| 9 | . ", "99| \n | 'a"},
		{"mistral", "a | \n | 9 | 。 | a▁", "  | a.| a\n| ▁ | ab"},
		{"mistral split", "a | \n |   | a▁", "a.| a\n| ab"},
		{"mistral unknown", "", "a | \n | a▁"},
		{"llama3 forms", "", "a | \n | a."},
		{"llama3 removed", "", "a | a."},
	} {
		b := f.open(t, f.find(t, tc.family)).NewCuts().borders
		for want, pairs := range map[bool]string{true: tc.parted, false: tc.not} {
			for pair := range strings.SplitSeq(pairs, "| ") {
				if _, n := utf8.DecodeRuneInString(pair); n > 0 && b.at(pair, n) != want {
					t.Errorf("%s: %q splits: %v", tc.family, pair, !want)
				}
			}
		}
	}
}

// FuzzBorders cuts texts of the families everywhere.
func FuzzBorders(f *testing.F) {
	all := readFamilies(f)
	var encoders []*Encoder
	var cuts []*Cuts
	for i := range all.Families {
		for _, tok := range []*Tokenizer{all.open(f, &all.Families[i]), all.withOdd(f, &all.Families[i])} {
			encoders, cuts = append(encoders, tok.NewEncoder()), append(cuts, tok.NewCuts())
		}
	}
	f.Add("the light, it's  \n\n here", uint8(0), uint64(1))
	f.Add("cafe\u0301 ▁▁ 中文。a b", uint8(30), uint64(2))
	f.Fuzz(func(t *testing.T, text string, which uint8, seed uint64) {
		if len(text) > 2000 {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		e := encoders[int(which)%len(encoders)]
		more, _ := borderText(rng, e.t, addedNames(e.t))
		at := rng.IntN(len(text) + 1)
		var plain []int
		if seed%2 == 0 {
			plain = []int{at}
		}
		checkCuts(t, "a family", e, cuts[int(which)%len(cuts)], rng, text[:at]+more+text[at:], plain)
	})
}
