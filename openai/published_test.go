package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// rendered has the outcome of a library: the beginning of the SHA-256 of the text, or nothing if the library refuses the conversation.
type rendered struct{ SHA256 string }

// published has conversations, and the renderings of each by templates.
type published struct {
	Tools         json.RawMessage
	Conversations map[string]struct {
		Messages json.RawMessage
		Tools    bool
	}
	Templates []struct {
		Template string
		Cases    map[string]struct {
			Transformers rendered
			VLLM         *rendered // nil: the same
		}
	}
}

func readPublished(t *testing.T) (p published) {
	t.Helper()
	data, err := os.ReadFile("../tokenizer/chat/testdata/published.json")
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// otherwise has the templates with which some conversations are rendered otherwise than by transformers and vLLM, and their number.
var otherwise = map[string]int{
	"llama-cpp-deepseek-r1.jinja":               12, // both fail, at a generator in map | tojson; ours is a list
	"meetkai-functionary-medium-v3.1.jinja":     12, // jinja2's safe makes Markup, so that + escapes HTML
	"unsloth-mistral-Devstral-Small-2507.jinja": 5,  // both fail, at a null content; ours is an empty text
}

// TestPublishedTemplates renders conversations with tools, as OpenAI's SDKs send them, with 70 published chat templates: the text must be
// transformers' or vLLM's. COPPICE_TEMPLATES names the directory with the templates; tokenizer/chat/testdata/published.py says whence.
func TestPublishedTemplates(t *testing.T) {
	dir := os.Getenv("COPPICE_TEMPLATES")
	if dir == "" {
		t.Skip("COPPICE_TEMPLATES names no directory; tokenizer/chat/testdata/published.py says what it must have")
	}
	published := readPublished(t)
	all, both := 0, 0
	for _, p := range published.Templates {
		text, err := os.ReadFile(filepath.Join(dir, p.Template))
		if err != nil {
			t.Fatal(err)
		}
		template, err := chat.NewNamed(map[string]string{"default": string(text)}, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}, chat.Limits{})
		if err != nil {
			t.Errorf("%s: %v", p.Template, err)
			continue
		}
		others := 0
		for name, c := range p.Cases {
			body := `{"messages":` + string(published.Conversations[name].Messages)
			if published.Conversations[name].Tools {
				body += `,"tools":` + string(published.Tools)
			}
			r, err := DecodeChat([]byte(body+"}"), Options{})
			if err != nil {
				t.Errorf("%s of %s: %v", name, p.Template, err)
				continue
			}
			r.Options.Now = time.Date(2025, 3, 7, 4, 5, 6, 0, time.UTC)
			got := rendered{}
			text, err := template.Render(r.Messages, r.Options)
			if err == nil {
				sum := sha256.Sum256([]byte(text))
				got.SHA256 = hex.EncodeToString(sum[:16])
			}
			vllm := c.Transformers
			if c.VLLM != nil {
				vllm = *c.VLLM
			}
			all++
			switch {
			case got == c.Transformers && got == vllm:
				both++
			case got != c.Transformers && got != vllm:
				others++
				t.Logf("%s: %q is neither transformers' nor vLLM's text: %v", p.Template, name, err)
			}
		}
		if others != otherwise[p.Template] {
			t.Errorf("%s: %d conversations are rendered otherwise than by both, want %d", p.Template, others, otherwise[p.Template])
		}
	}
	t.Logf("%d renderings, of which %d are those of both", all, both)
}
