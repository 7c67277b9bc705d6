package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// callForm has outputs of a model that writes calls in a form.
type callForm struct {
	form     string
	template string   // how the chat template writes the call c
	control  []string // control tokens of the vocabulary
	one, two string   // outputs with one and with two calls; "": the form has no second call
	before   string   // content of these outputs
	broken   string   // an output that calls nothing
	content  string   // its content, if that is not the output
	cuts     bool     // a call that max_tokens cuts comes out with what there is
}

// TestCallForms: over the wire, as a whole and streamed, calls in each form become tool_calls. Their
// marks never become content, control tokens or not.
func TestCallForms(t *testing.T) {
	for _, f := range callForms {
		t.Run(f.form+fmt.Sprint(len(f.control) > 0), func(t *testing.T) {
			said := &script{}
			b := start(t, setup{Server: Config{Template: f.chatTemplate(t)}, Node: coppice.Config{Scheduler: scheduler.Config{DefaultMaxTokens: 512}}, Tokenizer: f.tokenizer(t), Script: said})
			if got := b.srv.policies.calling.form.Name; got != f.form {
				t.Fatalf("the form is %s: %s", got, b.srv.ToolCalls())
			}
			ends := b.tok.EOS()
			say := func(text string) (tokens int) {
				all := append(b.tok.Encode(nil, text), ends[0])
				at := slices.IndexFunc(all, func(t kv.Token) bool { return slices.Contains(ends, t) })
				all = all[:at+1]
				said.Store(&all)
				return len(all)
			}
			const one, two = `weather {"city": "Paris"}`, `weather {"city": "Paris"},clock {}`
			for text, want := range map[string]string{f.one: one, f.two: two} {
				if text == "" {
					continue
				}
				n := say(text)
				b.called(text, `"tool_choice":"auto"`, f.before, want, "tool_calls", n)
			}
			plain := f.content
			if plain == "" {
				plain = f.broken
			}
			b.called(f.broken, `"tool_choice":"auto"`, plain, "", "stop", say(f.broken))
			say(f.one)
			for _, body := range []string{callAsk(`"tool_choice":"none"`), callAsk(`"tool_choice":"none","stream":true`)} {
				if a := b.merge(body); len(a.calls) > 0 || a.finish != "stop" || strings.Contains(a.content, "<|") || !strings.Contains(a.content, "Paris") {
					t.Errorf("tool_choice none: %+v", a)
				}
			}
			if !f.cuts {
				return
			}
			cut := len(b.tok.Encode(nil, f.one[:strings.Index(f.one, `Paris`)+2]))
			b.called(f.one, fmt.Sprintf(`"max_tokens":%d`, cut), f.before, `weather {"city": "Pa`, "length", cut)
		})
	}
}

// callAsk returns a request with two tools that follows a call and its result.
func callAsk(more string) string {
	return `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"clock","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"call00001","content":"noon"}],"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}},` +
		`{"type":"function","function":{"name":"clock","parameters":{"type":"object","properties":{}}}}],` + more + `}`
}

// called checks the answer to a request whose output is text, as a whole and streamed: its content,
// its calls as "name arguments,…", how it finished and how many tokens it counts.
func (b *bed) called(text, more, content, calls, finish string, tokens int) {
	b.Helper()
	for _, stream := range []string{"", `,"stream":true,"stream_options":{"include_usage":true}`} {
		body := callAsk(more + stream)
		a := b.merge(body)
		var all []string
		for _, c := range a.calls {
			all = append(all, c.Function.Name+" "+c.Function.Arguments)
		}
		if got := strings.Join(all, ","); got != calls || a.content != content || a.finish != finish {
			b.Errorf("%q %s: calls %q, content %q, finish %s\nwant calls %q, content %q, finish %s", text, stream, got, a.content, a.finish, calls, content, finish)
		}
		raw := string(b.do("POST", "/v1/chat/completions", body).body)
		if want := fmt.Sprintf(`"completion_tokens":%d,`, tokens); !strings.Contains(raw, want) {
			b.Errorf("%q %s: %s lacks %s", text, stream, raw, want)
		}
	}
}

func (f *callForm) chatTemplate(t *testing.T) *chat.Template {
	text := `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}` + f.template + `{% endfor %}{% endfor %}{{ tools | tojson }}{% if add_generation_prompt %}<assistant>{% endif %}`
	template, err := chat.NewNamed(map[string]string{"default": text}, nil, chat.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// tokenizer returns a tokenizer of bytes and control tokens.
func (f *callForm) tokenizer(t *testing.T) *tokenizer.Tokenizer {
	control := append([]string{"<|begin_of_text|>", "<|end_of_text|>", "<|other|>"}, f.control...)
	file, err := tokenizer.Train(tokenizer.TrainConfig{VocabSize: 256 + len(control), Special: control}, "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// names and arguments of calls in templates.
const (
	itsName      = `{{ c.function.name }}`
	itsArguments = `{{ c.function.arguments | tojson }}`
)

var mistralTemplate, hermesTemplate = `[TOOL_CALLS][{"name": "` + itsName + `", "arguments": ` + itsArguments + `, "id": "{{ c.id }}"}]</s>`, "<tool_call>\n{\"name\": \"" + itsName + "\", \"arguments\": " + itsArguments + "}\n</tool_call>"

var callForms = []callForm{
	{
		form: "hermes", template: hermesTemplate, before: "So:",
		one:    "So:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
		two:    "So:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
		broken: "The tag <tool_call> is text.",
	},
	{
		form: "hermes", template: hermesTemplate, control: []string{"<tool_call>", "</tool_call>"}, before: "So:",
		one:    "So:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
		two:    "So:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
		broken: "A <tool_call>b<|other|> is text.", content: "A b is text.",
	},
}

// publishedForms lists for each form published chat templates that write it. The others of the directory
// write none of the forms.
const publishedForms = `
hermes Bielik-11B-v3.0-Instruct MiMo-VL NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct Qwen-Qwen3-0.6B Reka-Edge ibm-granite-granite-4.0 ibm-granite-granite-4.1
mistral mistralai-Mistral-Nemo-Instruct-2407
mistral_args Mistral-Small-3.2-24B-Instruct-2506 mistralai-Ministral-3-14B-Reasoning-2512 unsloth-mistral-Devstral-Small-2507
functionary_v3.1 meetkai-functionary-medium-v3.1
functionary_v3.2 meetkai-functionary-medium-v3.2
deepseek_v3 deepseek-ai-DeepSeek-R1-Distill-Qwen-32B llama-cpp-deepseek-r1
deepseek_v31 deepseek-ai-DeepSeek-V3.1
openai openai-gpt-oss-120b
llama3_json meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct
pythonic LFM2.5-8B-A1B
`

// TestPublishedForms finds the form of published chat templates. COPPICE_TEMPLATES names their directory;
// tokenizer/chat/testdata/published.py says whence.
func TestPublishedForms(t *testing.T) {
	dir := os.Getenv("COPPICE_TEMPLATES")
	if dir == "" {
		t.Skip("COPPICE_TEMPLATES names no directory; tokenizer/chat/testdata/published.py says what it must have")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jinja"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates in %s: %v", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		template, err := chat.NewNamed(map[string]string{"default": string(text)}, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}, chat.Limits{})
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
			continue
		}
		got := ""
		if form, _ := formOf(template); form != nil {
			got = form.Name
		}
		name, want := strings.TrimSuffix(filepath.Base(file), ".jinja"), ""
		for line := range strings.Lines(publishedForms) {
			if words := strings.Fields(line); slices.Contains(words, name) {
				want = words[0]
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestCallFormIsChosen: by configuration, else from the template, else hermes; and the server says why.
func TestCallFormIsChosen(t *testing.T) {
	mistral := toolcall.FormByName("mistral")
	for _, tc := range []struct {
		template string
		form     *toolcall.Form
		want     string
	}{
		{hermesTemplate, nil, "hermes, as the chat template writes them"},
		{mistralTemplate, nil, "mistral, as the chat template writes them"},
		{hermesTemplate, mistral, "mistral, as configured; the chat template writes hermes"},
		{mistralTemplate, mistral, "mistral, as configured"},
		{"", nil, "hermes, since the chat template shows no form"},
		{"", mistral, "mistral, as configured"},
		{"{{ c.function.name }}: {{ c.function.arguments }}", nil, "hermes, since the form in the chat template is unknown"},
		{"{% if c.function.arguments is not string %}{{ raise_exception('text') }}{% endif %}" + strings.ReplaceAll(hermesTemplate, " | tojson", ""), nil, "hermes, as the chat template writes them"},
		{"{% if c.id | length != 9 or messages | length > 2 %}{{ raise_exception('id') }}{% endif %}" + mistralTemplate, nil, "mistral, as the chat template writes them"},
	} {
		f := callForm{template: tc.template}
		b := start(t, setup{Server: Config{Template: f.chatTemplate(t), CallForm: tc.form}, Tokenizer: f.tokenizer(t), Script: &script{}})
		if got := b.srv.ToolCalls(); got != tc.want {
			t.Errorf("%q, configured %v: %q, want %q", tc.template, tc.form, got, tc.want)
		}
	}
}
