package prompt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// TestTokensOfVLLM: the prompt tokens of over 200 requests with four templates, with tools and null contents, are those of
// vLLM. testdata/render.py compares the same requests with a running vLLM.
func TestTokensOfVLLM(t *testing.T) {
	var file struct {
		Model    string
		BOS      string `json:"bos_token"`
		EOS      string `json:"eos_token"`
		Requests []json.RawMessage
		Tokens   map[string][]string
	}
	data, err := os.ReadFile("testdata/render.json")
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := random.Generate(dir, random.Spec{Preset: random.Mini, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != file.Model {
		t.Fatal("the tokenizer is another one than that of render.json; see testdata/render.py")
	}
	config, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenfile.Parse(text, config)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for name, want := range file.Tokens {
		source, err := os.ReadFile("../../../tokenizer/chat/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		template, err := chat.NewNamed(map[string]string{"default": string(source)}, map[string]string{"bos_token": file.BOS, "eos_token": file.EOS}, chat.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		r := testReader(t, Config{Tokenizer: tok, Template: template})
		for i, body := range file.Requests {
			var p Prompt
			if err := r.Read(Chat, "", body, As{Foreign: true, ToolsPrompt: chat.TemplateTools}, &p); err != nil {
				t.Fatalf("%s, request %d: %v", name, i, err)
			}
			if want[i] == "" { // refused
				if p.Exact() {
					t.Errorf("%s refuses request %d, but its prompt is known: %s", name, i, body)
				}
				continue
			}
			var ids bytes.Buffer
			_ = binary.Write(&ids, binary.LittleEndian, p.Tokens)
			sum := sha256.Sum256(ids.Bytes())
			if compared++; !p.Exact() || hex.EncodeToString(sum[:8]) != want[i] {
				t.Errorf("%s, request %d: exact %v (%v), %d tokens differ: %s\n%s", name, i, p.Exact(), p.Inexact, len(p.Tokens), body, tok.Decode(nil, p.Tokens, false))
			}
		}
	}
	if compared < 200 {
		t.Errorf("%d prompts compared", compared)
	}
}
