package prompt

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
	"github.com/coppice-llm/coppice/tokenizer/trainer"
)

// testNow is the time that templates see.
var testNow = time.Date(2025, 3, 7, 4, 5, 6, 0, time.UTC)

// trained is a tokenizer like Llama 3's, small enough to be trained for a test.
var trained = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	special := []string{"<|begin|>", "<|turn|>", "<|over|>", "<|start|>", "<|end|>", "<|eot|>", "<s>", "</s>", "[INST]", "[/INST]"}
	data, err := trainer.Train(trainer.Config{VocabSize: 4000, Special: special}, opticks.Text())
	if err != nil {
		return nil, err
	}
	return tokenfile.Parse(data, []byte(`{"bos_token":"<|begin|>","add_bos_token":true}`))
})

func testTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := trained()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func testTemplate(t testing.TB, name string) *chat.Template {
	t.Helper()
	text, err := os.ReadFile("../../../tokenizer/chat/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.NewNamed(map[string]string{"default": string(text)}, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}, chat.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func testReader(t testing.TB, cfg Config) *Reader {
	t.Helper()
	cfg.Now = func() time.Time { return testNow }
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t testing.TB, r *Reader, kind Kind, body string, p *Prompt) {
	t.Helper()
	if err := r.Read(kind, "", []byte(body), As{}, p); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

// byServer returns package server's tokens for a body, if it accepts the body: see its
// completions, chatCompletions and encode.
func byServer(tok *tokenizer.Tokenizer, tmpl *chat.Template, kind Kind, body []byte) ([]kv.Token, error) {
	if kind == Completions {
		ask, err := openai.DecodeCompletion(body, openai.Options{})
		if err != nil {
			return nil, err
		}
		if p := ask.Prompts[0]; p.Tokens != nil {
			return p.Tokens, nil
		} else {
			return tok.EncodePrompt(nil, p.Text), nil
		}
	}
	if kind == Embeddings {
		ask, err := openai.DecodeEmbeddings(body, openai.Options{})
		if err != nil {
			return nil, err
		}
		if in := ask.Inputs[0]; in.Tokens != nil {
			return in.Tokens, nil
		} else {
			return tok.EncodePrompt(nil, in.Text), nil
		}
	}
	ask, err := openai.DecodeChat(body, openai.Options{})
	if err != nil {
		return nil, err
	}
	ask.Options.Now = testNow
	text, err := tmpl.Render(ask.Messages, ask.Options)
	if err != nil {
		return nil, err
	}
	if text, err = ask.CutFinal(text); err != nil {
		return nil, err
	}
	return tok.Encode(nil, text), nil
}

// conversationBody returns a chat of about that many bytes of text, in turns.
func conversationBody(bytes, turns int) string {
	text := opticks.Text()
	var b strings.Builder
	b.WriteString(`{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"system","content":"Be brief."}`)
	each := bytes / turns
	for i := range turns {
		role := []string{"user", "assistant"}[i%2]
		content, _ := json.Marshal(text[i*each%100_000:][:each])
		fmt.Fprintf(&b, `,{"role":%q,"content":%s}`, role, content)
	}
	b.WriteString(`]}`)
	return b.String()
}

func completionBody(bytes int) string {
	content, _ := json.Marshal(opticks.Text()[:bytes])
	return fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":100,"prompt":%s}`, content)
}

func tokenBody(n int) string {
	var b strings.Builder
	b.WriteString(`{"model":"m","stream":true,"max_tokens":100,"prompt":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, (i*7919+13)%128_000)
	}
	b.WriteString(`]}`)
	return b.String()
}
