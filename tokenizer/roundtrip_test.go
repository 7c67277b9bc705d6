package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// lossless are the byte-level families whose pipelines change no text.
var lossless = []string{"llama3", "gpt2", "tekken", "o200k", "llama3 punctuated", "llama3 behaviors"}

// encodeReversibly checks that text can be decoded from its tokens, with and without an
// Encoder.
func encodeReversibly(t *testing.T, tok *Tokenizer, name, text string) {
	t.Helper()
	ids := tok.Encode(nil, text)
	if got := string(tok.Decode(nil, ids, false)); got != text {
		t.Fatalf("%s: %q comes back as %q", name, text, got)
	}
}

func TestByteLevelFamiliesRoundTrip(t *testing.T) {
	f := readFamilies(t)
	rng := rand.New(rand.NewPCG(8, 1730))
	for _, name := range lossless {
		tok := f.open(t, f.find(t, name))
		for range 1000 {
			encodeReversibly(t, tok, name, randomText(rng, rng.IntN(40), true))
		}
	}
}

func FuzzFamilies(f *testing.F) {
	all := readFamilies(f)
	var toks []*Tokenizer
	for i := range all.Families {
		toks = append(toks, all.open(f, &all.Families[i]))
	}
	for _, text := range all.Texts[:60] {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i, tok := range toks {
			name := all.Families[i].Name
			ids := tok.Encode(nil, text)
			// Making an Encoder takes longer than everything else, so do it for one family at a
			// time.
			if len(text)%len(toks) == i && !slices.Equal(encodedBy(tok.NewEncoder(), nil, text), ids) {
				t.Fatalf("%s: %q: the Encoder differs", name, text)
			}
			if slices.Contains(lossless, name) {
				encodeReversibly(t, tok, name, text)
			}
			if got, want := stream(tok, ids), toValid(tok.Decode(nil, ids, true)); got != want {
				t.Fatalf("%s: %q streams as %q", name, got, want)
			}
		}
	})
}

// FuzzPipeline puts arbitrary steps into an otherwise valid file.
func FuzzPipeline(f *testing.F) {
	all := readFamilies(f)
	for i := range all.Families {
		file := all.Families[i].File
		f.Add(string(file["normalizer"]), string(file["pre_tokenizer"]), string(file["decoder"]), string(file["post_processor"]), "The light, 光 1 ")
	}
	bases := []*family{all.find(f, "mistral"), all.find(f, "gpt2")}
	f.Fuzz(func(t *testing.T, normalizer, pre, decoder, post, text string) {
		if len(normalizer)+len(pre) > 2000 || len(text) > 60 {
			return
		}
		for _, base := range bases {
			file := `{"normalizer":` + normalizer + `,"pre_tokenizer":` + pre + `,"decoder":` + decoder + `,"post_processor":` + post +
				`,"added_tokens":` + string(base.File["added_tokens"]) + `,"model":` + string(base.File["model"]) + `}`
			if tok, err := parse([]byte(file), nil); err == nil {
				tok.Decode(nil, tok.EncodePrompt(nil, text), true)
			}
		}
	})
}

// Splitting pieces before metaspaces must give the same tokens as merging the whole text.
func TestWordsAreSafe(t *testing.T) {
	f := readFamilies(t)
	tok := f.open(t, f.find(t, "mistral"))
	if tok.words != metaspace {
		t.Fatalf("words %q: the vocabulary has merges that join words", tok.words)
	}
	rng := rand.New(rand.NewPCG(9, 1730))
	for i := range 400 {
		text := randomText(rng, 1+rng.IntN(40), false)
		if i%2 == 0 {
			at := rng.IntN(100_000)
			text = opticks.Text()[at : at+300]
		}
		text = tok.normalize(text, &scratch{})
		if got, want := tok.encodePiece(nil, text, &scratch{}), tok.mergeNaive(text); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	}
	// With a merge that crosses words, pieces must not be split.
	model := string(f.find(t, "mistral").File["model"])
	model = strings.Replace(model, `"merges":[`, `"merges":[["e","▁"],`, 1)
	model = strings.Replace(model, `"vocab":{`, fmt.Sprintf(`"vocab":{"e▁":%d,`, tok.VocabSize()), 1)
	of := family{Name: "joined", File: maps.Clone(f.find(t, "mistral").File)}
	of.File["model"] = json.RawMessage(model)
	joined := f.open(t, &of)
	if joined.words != "" {
		t.Error("words are split although a merge joins them")
	}
	if got, want := joined.Encode(nil, "the the the"), joined.mergeNaive("▁the▁the▁the"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A stream that continues after a prompt keeps the space before the text's first word, which
// Decode drops.
func TestContinuationKeepsTheSpace(t *testing.T) {
	f := readFamilies(t)
	for name, want := range map[string][2]string{
		"mistral": {"the light", " the light"}, "mistral always": {"the light", " the light"}, "gpt2": {" the light", " the light"},
	} {
		tok := f.open(t, f.find(t, name))
		text := " the light"
		if !tok.byteLevel {
			text = "the light"
		}
		ids := tok.Encode(nil, text)
		for i, d := range []*Detokenizer{tok.NewDetokenizer(), tok.NewContinuation()} {
			for range 2 { // a second stream after Flush is like the first
				var out []byte
				for _, id := range ids {
					out = d.Next(out, id)
				}
				if got := string(d.Flush(out)); got != want[i] {
					t.Errorf("%s: stream %d gives %q, want %q", name, i, got, want[i])
				}
			}
		}
	}
}

// An invalid UTF-8 byte is one symbol in files with byte tokens, too.
func TestByteFallbackKeepsAnyBytes(t *testing.T) {
	f := readFamilies(t)
	tok := f.open(t, f.find(t, "mistral"))
	for _, text := range []string{"a\xffb", "\xe2\x82", "\xf0\x9f\x99 x", "\x00\x80"} {
		if got := string(tok.Decode(nil, tok.Encode(nil, text), false)); got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	}
}

func TestAddedTokensByTheirNames(t *testing.T) {
	f := readFamilies(t)
	tok := f.open(t, f.find(t, "mistral flags"))
	for _, name := range []string{"<both>", "the light", "<s>", "word"} {
		id, ok := tok.AddedToken(name)
		if !ok || !strings.HasSuffix(string(tok.Decode(nil, []kv.Token{id}, false)), name) {
			t.Errorf("%q: %d %v", name, id, ok)
		}
	}
}

func TestStepsAtTheLimit(t *testing.T) {
	steps := func(n int) map[string]string {
		return map[string]string{"normalizer": `{"type":"Sequence","normalizers":[` + strings.TrimSuffix(strings.Repeat(`{"type":"NFC"},`, n), ",") + `]}`}
	}
	nested := func(n int) map[string]string {
		return map[string]string{"normalizer": strings.Repeat(`{"type":"Sequence","normalizers":[`, n) + strings.Repeat(`]}`, n)}
	}
	for _, tc := range []struct {
		changes map[string]string
		ok      bool
	}{{steps(maxSteps), true}, {steps(maxSteps + 1), false}, {nested(maxNesting), true}, {nested(maxNesting + 1), false}} {
		if _, err := parse(edit(t, tc.changes), nil); (err == nil) != tc.ok {
			t.Errorf("%.60v: %v", tc.changes, err)
		}
	}
}
