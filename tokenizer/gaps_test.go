package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// gaps is testdata/gaps.json: encodings by Hugging Face's library with vocabularies that lack
// bytes or ids, and with DeepSeek's pre-tokenizer. See testdata/gaps.py.
type gaps struct {
	MadeWith struct{ Tokenizers string } `json:"made_with"`
	Texts    []string
	Files    []struct {
		Name    string
		File    json.RawMessage
		IDs     [][]kv.Token
		Decoded []string
		Pieces  [][]int
	}
}

func readGaps(t testing.TB) gaps {
	t.Helper()
	data, err := os.ReadFile("testdata/gaps.json")
	if err != nil {
		t.Fatal(err)
	}
	var g gaps
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Texts) < 100 || len(g.Files) < 7 || g.MadeWith.Tokenizers == "" {
		t.Fatalf("gaps.json holds too little: %d texts, %d files", len(g.Texts), len(g.Files))
	}
	return g
}

func TestGapsMatchHuggingFace(t *testing.T) {
	g := readGaps(t)
	for _, f := range g.Files {
		tok, err := parse(f.File, nil)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		encoder := tok.NewEncoder()
		for i, text := range g.Texts {
			for _, got := range [][]kv.Token{tok.Encode(nil, text), encodedBy(encoder, nil, text), encodedBy(encoder, nil, text)} {
				if !slices.Equal(got, f.IDs[i]) {
					t.Errorf("%s: %q\n got %v\nwant %v", f.Name, text, got, f.IDs[i])
				}
			}
			if got := toValid(tok.Decode(nil, f.IDs[i], true)); got != f.Decoded[i] {
				t.Errorf("%s: %q decodes to %q, want %q", f.Name, text, got, f.Decoded[i])
			}
			if f.Pieces == nil {
				continue
			}
			if got := pieceLengths(tok, text); !slices.Equal(got, f.Pieces[i]) {
				t.Errorf("%s: %q: pieces %v, want %v", f.Name, text, got, f.Pieces[i])
			}
		}
	}
}

func TestHoles(t *testing.T) {
	tok, err := parse([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":2,"ab":5},"merges":[["a","b"]]},
		"added_tokens":[{"id":9,"content":"<|end|>","special":true}],
		"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != 10 {
		t.Errorf("vocabulary of %d, want 10", tok.VocabSize())
	}
	for id := range kv.Token(12) {
		known := id == 0 || id == 2 || id == 5 || id == 9
		if tok.Known(id) != known {
			t.Errorf("Known(%d) is %v", id, !known)
		}
		if text := tok.Text(id); (text != "") != (known && id != 9) {
			t.Errorf("Text(%d) is %q", id, text)
		}
		if !known {
			if got := tok.Decode(nil, []kv.Token{0, id, 2}, false); string(got) != "ab" {
				t.Errorf("hole %d decodes to %q", id, got)
			}
			if got := stream(tok, []kv.Token{0, id, 2}); got != "ab" {
				t.Errorf("hole %d streams to %q", id, got)
			}
		}
	}
	if tok.Known(1<<32 - 1) {
		t.Error("the last id is known")
	}
}
