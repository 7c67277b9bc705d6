package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		Template   string
		DropsTools bool `json:"drops_tools"`
		Cases      map[string]struct {
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

// publishedDir returns the directory with the templates.
func publishedDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("COPPICE_TEMPLATES")
	if dir == "" {
		t.Skip("COPPICE_TEMPLATES names no directory; tokenizer/chat/testdata/published.py says what it must have")
	}
	return dir
}

func openPublished(t *testing.T, dir, name string) *chat.Template {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.NewNamed(map[string]string{"default": string(text)}, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}, chat.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return template
}

// otherwise has the templates with which some conversations are rendered otherwise than by transformers and vLLM, and their number.
var otherwise = map[string]int{
	"llama-cpp-deepseek-r1.jinja":           12, // both fail, at a generator in map | tojson; ours is a list
	"meetkai-functionary-medium-v3.1.jinja": 12, // jinja2's safe makes Markup, so that + escapes HTML
	// The empty text of a call is a text, as in transformers, and a tool's texts are one text, as in vLLM.
	"google-gemma-4-31B-it-interleaved.jinja":   1,
	"google-gemma-4-31B-it.jinja":               1,
	"moonshotai-Kimi-K2.jinja":                  2,
	"unsloth-mistral-Devstral-Small-2507.jinja": 5, // both fail, at a null content; ours is an empty text
}

// TestPublishedTemplates renders conversations with tools, as OpenAI's SDKs send them, with 70 published chat templates: the text must be
// transformers' or vLLM's. COPPICE_TEMPLATES names the directory with the templates; tokenizer/chat/testdata/published.py says whence.
func TestPublishedTemplates(t *testing.T) {
	dir, published := publishedDir(t), readPublished(t)
	all, both := 0, 0
	for _, p := range published.Templates {
		template := openPublished(t, dir, p.Template)
		if template.DropsTools() != p.DropsTools {
			t.Errorf("%s: drops tools: %v", p.Template, template.DropsTools())
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
			r.Options.ToolsPrompt = chat.TemplateTools // the template as it is
			text, err := template.Render(r.Messages, r.Options)
			if errors.Is(err, chat.ErrToolsDropped) { // the libraries don't say so
				r.Options.Tools = nil
				text, err = template.Render(r.Messages, r.Options)
			}
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

// oneCall has the templates that take one call a message.
var oneCall = []string{
	"GigaChat3-10B-A1.8B.jinja", "GigaChat3.1-10B-A1.8B.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja", "meta-llama-Llama-3.2-3B-Instruct.jinja",
	"meta-llama-Llama-3.3-70B-Instruct.jinja", "openai-gpt-oss-120b.jinja",
}

// TestPublishedToolTurns drives each of the published templates through conversations of two turns with tools, as an agent has them
// with this server's ids: no template fails, and tools, calls, results and answers are in the text.
func TestPublishedToolTurns(t *testing.T) {
	const tools = `,"tools":[{"type":"function","function":{"name":"read_file","description":"Reads a file.","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}]`
	call := func(n, path string) string {
		return `{"id":"call_0123456789abcdef_0_` + n + `","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"` + path + `\"}"}}`
	}
	result := func(n, text string) string {
		return `{"role":"tool","tool_call_id":"call_0123456789abcdef_0_` + n + `","content":"` + text + `"}`
	}
	const rules, ask = `{"role":"system","content":"Rule one."}`, `{"role":"user","content":"Compare them."}`
	const then = `,{"role":"assistant","content":"They differ."},{"role":"user","content":"Where?"}`
	one := ask + `,{"role":"assistant","content":null,"tool_calls":[` + call("0", "left.txt") + `]},` + result("0", "a long poem")
	two := ask + `,{"role":"assistant","content":null,"tool_calls":[` + call("0", "left.txt") + `,` + call("1", "right.txt") + `]},` + result("1", "a short note") + `,` + result("0", "a long poem")
	said := []string{"left.txt", "a long poem"}
	both := append(said, "right.txt", "a short note")
	dir := publishedDir(t)
	count := 0
	for _, p := range readPublished(t).Templates {
		template := openPublished(t, dir, p.Template)
		if template.OneCall() != slices.Contains(oneCall, p.Template) {
			t.Errorf("%s: one call a message: %v", p.Template, template.OneCall())
		}
		for _, c := range []struct {
			body string
			want []string
		}{
			{ask + `],"tools":[{"type":"function","function":{"name":"read_file"}}]`, []string{"read_file", "Compare them."}},
			{ask + `]` + tools, []string{"read_file", "Compare them."}},
			{rules + `,` + ask + `]` + tools, []string{"read_file", "Rule one.", "Compare them."}},
			{one + `]` + tools, append(said, "read_file")},
			{rules + `,` + one + then + `]` + tools, append(said, "read_file", "Rule one.", "They differ.", "Where?")},
			{two + `]` + tools, append(both, "read_file")},
			{two + then + `]` + tools, append(both, "read_file", "They differ.", "Where?")},
			{two + then + `]`, append(both, "They differ.", "Where?")},
			{two + then + `],"tool_choice":"none"` + tools, append(both, "They differ.", "Where?")},
			{rules + `,` + two + then + `]`, append(both, "Rule one.", "Where?")},
		} {
			r, err := DecodeChat([]byte(`{"messages":[`+c.body+`}`), Options{})
			if err != nil {
				t.Fatal(err)
			}
			r.Options.Now = time.Date(2025, 3, 7, 4, 5, 6, 0, time.UTC)
			text, err := template.Render(r.Messages, r.Options)
			for _, want := range c.want {
				if err != nil || !strings.Contains(text, want) {
					t.Errorf("%s: no %q in %q, %v\nfor %s", p.Template, want, text, err, c.body)
				}
			}
			count++
		}
	}
	t.Logf("%d conversations", count)
}
