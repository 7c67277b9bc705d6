package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
)

// families is testdata/families.json: small tokenizers with the pipelines of the model
// families, and the encodings by Hugging Face's library of texts with them. See
// testdata/families.py.
type families struct {
	MadeWith struct{ Tokenizers string } `json:"made_with"`
	Texts    []string
	Families []family
}

// family is one pipeline. If it has a Base, File has everything but the vocabulary and the
// merges; these are taken from the family that Base names.
type family struct {
	Name, Base string
	File       map[string]json.RawMessage
	IDs        [][]kv.Token
	Prompt     []kv.Token
	Decoded    []string
}

func readFamilies(t testing.TB) families {
	t.Helper()
	path := "testdata/families.json"
	if other := os.Getenv("COPPICE_FAMILIES"); other != "" { // a larger run of families.py
		path = other
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f families
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Texts) < 200 || len(f.Families) < 20 || f.MadeWith.Tokenizers == "" {
		t.Fatalf("%s holds too little: %d texts, %d families", path, len(f.Texts), len(f.Families))
	}
	return f
}

// tokenizerJSON returns the family's complete file.
func (f *families) tokenizerJSON(t testing.TB, of *family) []byte {
	t.Helper()
	file := of.File
	if of.Base != "" {
		base := f.find(t, of.Base)
		var model, own map[string]json.RawMessage
		if err := json.Unmarshal(base.File["model"], &model); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(of.File["model"], &own); err != nil {
			t.Fatal(err)
		}
		own["vocab"], own["merges"] = model["vocab"], model["merges"]
		file = map[string]json.RawMessage{}
		for key, value := range of.File {
			file[key] = value
		}
		file["model"], _ = json.Marshal(own)
	}
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (f *families) find(t testing.TB, name string) *family {
	t.Helper()
	for i := range f.Families {
		if f.Families[i].Name == name {
			return &f.Families[i]
		}
	}
	t.Fatalf("no family %q", name)
	return nil
}

func (f *families) open(t testing.TB, of *family) *Tokenizer {
	t.Helper()
	tok, err := parse(f.tokenizerJSON(t, of), nil)
	if err != nil {
		t.Fatalf("%s: %v", of.Name, err)
	}
	return tok
}

func TestFamiliesMatchHuggingFace(t *testing.T) {
	f := readFamilies(t)
	for i := range f.Families {
		of := &f.Families[i]
		tok := f.open(t, of)
		encoder := tok.NewEncoder()
		failed := 0
		for i, text := range f.Texts {
			if got := tok.Encode(nil, text); !slices.Equal(got, of.IDs[i]) {
				t.Errorf("%s: %q\n got %v\nwant %v", of.Name, text, got, of.IDs[i])
				failed++
			}
			for range 2 { // the second time from the cache
				if got := encodedBy(encoder, nil, text); !slices.Equal(got, of.IDs[i]) {
					t.Errorf("%s: %q: the Encoder gives %v, want %v", of.Name, text, got, of.IDs[i])
				}
			}
			if of.decodesAsTheirs(tok, i) {
				if got := toValid(tok.Decode(nil, of.IDs[i], true)); got != of.Decoded[i] {
					t.Errorf("%s: %q decodes to %q, want %q", of.Name, text, got, of.Decoded[i])
					failed++
				}
			}
			if got, want := stream(tok, of.IDs[i]), toValid(tok.Decode(nil, of.IDs[i], true)); got != want {
				t.Errorf("%s: %q streams to %q, want %q", of.Name, text, got, want)
			}
			if failed > 10 {
				t.Errorf("%s: and so on", of.Name)
				break
			}
		}
		if got := tok.EncodePrompt(nil, f.Texts[1]); !slices.Equal(got, of.Prompt) {
			t.Errorf("%s: prompt %v, want %v", of.Name, got, of.Prompt)
		}
	}
}

// decodesAsTheirs reports whether text i must decode as in Hugging Face's library. It returns
// false for the known differences: the library runs non-ASCII added tokens through its byte
// alphabet, and replaces every byte of a run of byte tokens that is not valid UTF-8.
func (f *family) decodesAsTheirs(tok *Tokenizer, i int) bool {
	for _, id := range f.IDs[i] {
		if s := tok.text[id]; tok.byteLevel && !below(s, 0x80) {
			if _, added := tok.AddedToken(s); added {
				return false
			}
		}
	}
	return tok.byteLevel || utf8.Valid(tok.Decode(nil, f.IDs[i], true))
}
