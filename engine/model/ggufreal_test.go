package model

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// installed returns the path of a file in the directory COPPICE_TOKENIZERS, which
// tools/tokenizers/install.py fills.
func installed(t *testing.T, path string) string {
	t.Helper()
	dir := os.Getenv("COPPICE_TOKENIZERS")
	if dir == "" {
		t.Skip("COPPICE_TOKENIZERS names no directory; tools/tokenizers/install.py fills one")
	}
	path = filepath.Join(dir, path)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is not there; run tools/tokenizers/install.py again", path)
	}
	return path
}

// encodeAsReference compares the tokens of all texts with those of Hugging Face's library.
func encodeAsReference(t *testing.T, tok *tokenizer.Tokenizer, ids string) {
	t.Helper()
	var texts []struct{ Text string }
	var want struct{ IDs [][]kv.Token }
	for path, into := range map[string]any{"../../tokenizer/testdata/texts.json": &texts, installed(t, ids): &want} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	if len(texts) < 200 || len(want.IDs) != len(texts) {
		t.Fatalf("%d texts, %d of the reference", len(texts), len(want.IDs))
	}
	for i, text := range texts {
		if got := tok.Encode(nil, text.Text); !slices.Equal(got, want.IDs[i]) {
			t.Errorf("%q\n got %v\nwant %v", text.Text, got, want.IDs[i])
		}
	}
}

func TestGGUFOfARealModel(t *testing.T) {
	path := installed(t, "models/SmolLM2-135M-Instruct.Q4_1.gguf")
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := m.Config()
	if c.Layers != 30 || c.Hidden != 576 || c.Heads != 9 || c.KVHeads != 3 || c.Vocab != 49152 || !c.TiedHead || m.Layers()[0].Q.Quant != gguf.Q4_1 || m.Embed().Quant != gguf.Q8_0 {
		t.Errorf("%+v", c)
	}
	if end, ok := m.Tokenizer().AddedToken("<|im_end|>"); !ok || !slices.Contains(c.EOS, end) {
		t.Errorf("ends %v, want %d among them", c.EOS, end)
	}
	encodeAsReference(t, m.Tokenizer(), "smollm2/ids.json")
}

// SentencePiece vocabularies have scores in place of merges. With the scores taken from the
// order of the file's merges, the implied merges and the tokens must equal the file's.
func TestGGUFOfPieces(t *testing.T) {
	data, err := os.ReadFile(installed(t, "llama2/tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Model struct {
			Vocab  map[string]int
			Merges []string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	n := len(file.Model.Vocab)
	tokens, kinds, scores := make([]string, n), make([]int32, n), make([]float32, n)
	for token, id := range file.Model.Vocab {
		tokens[id], kinds[id], scores[id] = token, tokenNormal, float32(-len(file.Model.Merges))
		switch {
		case token == "<unk>":
			kinds[id], scores[id] = tokenUnknown, 0
		case token == "<s>" || token == "</s>":
			kinds[id], scores[id] = tokenControl, 0
		case strings.HasPrefix(token, "<0x"):
			kinds[id], scores[id] = tokenByte, 0
		}
	}
	for rank, merge := range slices.Backward(file.Model.Merges) {
		left, right, _ := strings.Cut(merge, " ")
		scores[file.Model.Vocab[left+right]] = float32(-rank)
	}
	header, err := writer.Header([]writer.Pair{
		{Key: wordKeys + "model", Value: "llama"}, {Key: wordKeys + "tokens", Value: tokens}, {Key: wordKeys + "token_type", Value: kinds},
		{Key: wordKeys + "scores", Value: scores}, {Key: wordKeys + "bos_token_id", Value: uint32(1)}, {Key: wordKeys + "eos_token_id", Value: uint32(2)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(header)
	if err != nil {
		t.Fatal(err)
	}
	v, err := readVocabulary(&f.Meta)
	if err != nil {
		t.Fatal(err)
	}
	merges, err := v.pieceMerges(file.Model.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, len(merges))
	for i, m := range merges {
		got[i] = m[0] + " " + m[1]
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(file.Model.Merges))) {
		t.Errorf("%d merges, Hugging Face's file has %d, and they differ", len(got), len(file.Model.Merges))
	}
	words, err := v.files()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenfile.Parse(words["tokenizer.json"], words["tokenizer_config.json"])
	if err != nil {
		t.Fatal(err)
	}
	encodeAsReference(t, tok, "llama2/ids.json")
	if prompt := tok.EncodePrompt(nil, "a"); len(prompt) != 2 || prompt[0] != 1 {
		t.Errorf("prompt %v, want <s> before it", prompt)
	}
}
