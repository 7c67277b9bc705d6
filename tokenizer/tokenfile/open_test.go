package tokenfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// trainedFile is a tokenizer.json that Train wrote.
var trainedFile = filepath.Join("..", "testdata", "tokenizer.json")

func TestOpenReadsConfig(t *testing.T) {
	data, err := os.ReadFile(trainedFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tokenizer.json")
	if _, err := tokenfile.Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", data)
	write("tokenizer_config.json", []byte(`{"bos_token":null,"eos_token":{"content":"<|eot|>"},"add_bos_token":false}`))
	tok, err := tokenfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.EOS(); !slices.Equal(got, []kv.Token{1499}) {
		t.Errorf("EOS %v, want 1499 alone", got)
	}
	write("tokenizer.json", data[:1000])
	if _, err := tokenfile.Open(path); !errors.Is(err, tokenizer.ErrInvalid) || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v, want its path", err)
	}
}

// TestForms: all forms that a file can name are there, and do what they are named for.
func TestForms(t *testing.T) {
	data, err := os.ReadFile(trainedFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"NFC": "\u00e9 \ufb01", "NFD": "e\u0301 \ufb01", "NFKC": "\u00e9 fi", "NFKD": "e\u0301 fi"} {
		file := strings.Replace(string(data), `"normalizer": null`, `"normalizer": {"type": "`+name+`"}`, 1)
		tok, err := tokenfile.Parse([]byte(file), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"\u00e9 \ufb01", "e\u0301 \ufb01"} {
			got := string(tok.Decode(nil, tok.Encode(nil, text), false))
			if got != want {
				t.Errorf("%s of %+q: %+q, want %+q", name, text, got, want)
			}
		}
		if _, err := tokenizer.Parse([]byte(file), nil, nil); !errors.Is(err, tokenizer.ErrUnsupported) {
			t.Errorf("%s without forms: %v", name, err)
		}
	}
}
