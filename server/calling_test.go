package server

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
	"github.com/coppice-llm/coppice/tokenizer/trainer"
	"github.com/coppice-llm/coppice/tool"
)

// callForm has outputs of a model that writes calls in a form.
type callForm struct {
	form     string
	template string   // how the chat template writes the call c
	control  []string // control tokens in some vocabularies
	before   string   // content of one and two
	one, two string   // outputs with one and with two calls; "": the form has no second call
	held     string   // like one, as the grammar of the form has it; "": so is one
	text     string   // an output that calls nothing, with marks
	content  string   // its content, if that is not text
}

// TestCallForms: over the wire, as a whole and streamed, calls in each form become tool_calls. Their
// marks never become content where they are control tokens.
func TestCallForms(t *testing.T) {
	for _, f := range callForms {
		t.Run(f.form, f.test)
		if plain := f; f.control != nil {
			plain.control = nil
			t.Run(f.form+" in ordinary tokens", plain.test)
		}
	}
}

func (f *callForm) test(t *testing.T) {
	said := &script{}
	b := start(t, setup{Server: Config{Template: f.chatTemplate(t)}, Node: coppice.Config{Scheduler: scheduler.Config{DefaultMaxTokens: 400}}, Tokenizer: f.tokenizer(t), Script: said})
	if got := b.srv.policies.calling.Form.Name; got != f.form {
		t.Fatalf("the form is %s", b.srv.ToolCalls())
	}
	say := func(text string) (tokens int) {
		ends := b.tok.EOS()
		all := append(b.tok.Encode(nil, text), ends[0])
		all = all[:1+slices.IndexFunc(all, func(t kv.Token) bool { return slices.Contains(ends, t) })]
		said.Store(&all)
		return len(all)
	}
	const one, two = `weather {"city":"Paris"}`, `weather {"city":"Paris"},clock {}`
	say(cmp.Or(f.held, f.one))
	if a := b.merge(callAsk(`"stream":true`)); len(a.calls) != 1 || a.calls[0].Function.Name != "weather" || f.held == "" && a.content != f.before || a.finish != "tool_calls" {
		t.Errorf("held to the form: %+v", a)
	}
	var all []string
	for token := range b.tok.VocabSize() {
		all = append(all, strconv.Itoa(token))
	}
	free := `"allowed_token_ids":[` + strings.Join(all, ",") + `]` // such a request is not held to the form
	b.called(f.one, free, f.before, one, "tool_calls", say(f.one))
	if f.two != "" {
		n := say(f.two)
		b.called(f.two, free, f.before, two, "tool_calls", n)
		b.called(f.two, free+`,"parallel_tool_calls":false`, f.before, one, "tool_calls", n)
	}
	content := f.content
	if content == "" {
		content = strings.ReplaceAll(f.text, "<|other|>", "")
		for _, token := range f.control {
			content = strings.ReplaceAll(content, token, "")
		}
	}
	b.called(f.text, free, content, "", "stop", say(f.text))
	say(f.one)
	for _, stream := range []string{"", `,"stream":true`} {
		a := b.merge(callAsk(`"tool_choice":"none"` + stream))
		if marks := strings.Contains(a.content, "<|") || strings.Contains(a.content, "[TOOL"); len(a.calls) > 0 || a.finish != "stop" || !strings.Contains(a.content, "Paris") || marks && f.control != nil {
			t.Errorf("tool_choice none: %+v", a)
		}
	}
	cut := len(b.tok.Encode(nil, f.one[:strings.Index(f.one, "Paris")+2]))
	b.called(f.one, free+fmt.Sprintf(`,"max_tokens":%d`, cut), f.before, `weather {"city":"Pa`, "length", cut)
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
			all = append(all, c.Function.Name+" "+strings.ReplaceAll(c.Function.Arguments, ": ", ":"))
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
	file, err := trainer.Train(trainer.Config{VocabSize: 256 + len(control), Special: control}, "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenfile.Parse(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// itsName and itsArguments are those of a call in a chat template.
const itsName, itsArguments = `{{ c.function.name }}`, `{{ c.function.arguments | tojson }}`

const (
	hermesTemplate  = "<tool_call>\n{\"name\": \"" + itsName + "\", \"arguments\": " + itsArguments + "}\n</tool_call>"
	mistralTemplate = `[TOOL_CALLS][{"name": "` + itsName + `", "arguments": ` + itsArguments + `, "id": "{{ c.id }}"}]</s>`
)

// paris are the arguments of the first call.
const paris = `{"city": "Paris"}`

var callForms = []callForm{{
	form: "hermes", template: hermesTemplate, control: []string{"<tool_call>", "</tool_call>"}, before: "So:",
	one:  "So:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": " + paris + "}\n</tool_call>",
	two:  "So:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": " + paris + "}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
	text: "A <tool_call>b<|other|> is text.",
}, {
	form: "mistral", template: mistralTemplate, control: []string{"[TOOL_CALLS]"}, before: "So:",
	one:  `So: [TOOL_CALLS][{"name": "weather", "arguments": ` + paris + `}]`,
	two:  `So: [TOOL_CALLS][{"name": "weather", "arguments": ` + paris + `}, {"name": "clock", "arguments": {}}]`,
	text: "A [TOOL_CALLS][b<|other|>] is text.",
}, {
	form: "mistral_args", template: "[TOOL_CALLS]" + itsName + "[CALL_ID]{{ c.id }}[ARGS]" + itsArguments, control: []string{"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"}, before: "So:",
	one:  "So: [TOOL_CALLS]weather[ARGS]" + paris,
	two:  "So: [TOOL_CALLS]weather[CALL_ID]a12345678[ARGS]" + paris + "[TOOL_CALLS]clock[ARGS]{}",
	text: "A [ARGS]b [TOOL_CALLS]is text.",
}, {
	form: "functionary_v3.1", template: "<function=" + itsName + ">" + itsArguments + "</function>", before: "So:",
	one:  "So: <function=weather>" + paris + "</function>",
	two:  "So: <function=weather>" + paris + "</function><function=clock>{}</function>",
	text: "A <function=b> is text.",
}, {
	form: "functionary_v3.2", template: ">>>" + itsName + "\n" + itsArguments, before: "So:",
	one:  "all\nSo:>>>weather\n" + paris,
	two:  "all\nSo:>>>weather\n" + paris + ">>>clock\n{}",
	text: "all\nThis is text.", content: "This is text.",
}, {
	form: "deepseek_v3", template: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>" + itsName + "\n```json\n" + itsArguments + "\n```<｜tool▁call▁end｜>", before: "So:",
	control: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
	one:     "So:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + paris + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
	two: "So:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + paris + "\n```<｜tool▁call▁end｜>" +
		"<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
	text: "A <｜tool▁calls▁begin｜>, b.",
}, {
	form: "deepseek_v31", template: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + itsName + "<｜tool▁sep｜>" + itsArguments + "<｜tool▁call▁end｜>", before: "So:",
	control: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
	one:     "So:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + paris + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
	two: "So:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + paris + "<｜tool▁call▁end｜>" +
		"<｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
	text: "A <｜tool▁calls▁begin｜>, b.",
}, {
	form: "openai", template: "<|start|>assistant to=functions." + itsName + "<|channel|>commentary json<|message|>" + itsArguments + "<|call|>", before: "So:",
	control: []string{"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"},
	one:     "<|channel|>commentary<|message|>So:<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" + paris + "<|call|>",
	text:    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>This is text.<|return|>", content: "This is text.",
}, {
	form: "llama3_json", template: `{"name": "` + itsName + `", "parameters": ` + itsArguments + `}`, control: []string{"<|python_tag|>"},
	one:  `<|python_tag|>{"name": "weather", "parameters": ` + paris + `}`,
	two:  `{"name": "weather", "parameters": ` + paris + `}; {"name": "clock", "parameters": {}}`,
	held: `{"name": "weather", "parameters": ` + paris + `}`,
	text: "<|python_tag|>print(1)",
}, {
	form: "pythonic", template: `[` + itsName + `({% for k, v in c.function.arguments.items() %}{{ k }}="{{ v }}"{% endfor %})]`, control: []string{"<|tool_call_start|>", "<|tool_call_end|>"}, before: "So:",
	one:  `So:<|tool_call_start|>[weather(city="Paris")]<|tool_call_end|>`,
	two:  `So:<|tool_call_start|>[weather(city='Paris'), clock()]<|tool_call_end|>`,
	held: `{"name": "weather", "arguments": ` + paris + `}`,
	text: "A <|tool_call_start|>b is text.",
}}

// publishedForms lists for each form published chat templates that write it. The others of the directory
// write none of the forms, or leave out tools.
const publishedForms = `
hermes Bielik-11B-v3.0-Instruct MiMo-VL NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct Qwen-Qwen3-0.6B Reka-Edge ibm-granite-granite-4.0 ibm-granite-granite-4.1
mistral mistralai-Mistral-Nemo-Instruct-2407
mistral_args Mistral-Small-3.2-24B-Instruct-2506 mistralai-Ministral-3-14B-Reasoning-2512 unsloth-mistral-Devstral-Small-2507
functionary_v3.1 meetkai-functionary-medium-v3.1
functionary_v3.2 meetkai-functionary-medium-v3.2
deepseek_v3 llama-cpp-deepseek-r1
openai openai-gpt-oss-120b
llama3_json meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct
pythonic LFM2-8B-A1B LFM2.5-8B-A1B
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
		if form, _ := tool.FormOf(template, chat.TemplateTools); form != nil {
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
		{hermesTemplate, mistral, "mistral, as configured; conversations have hermes"},
		{mistralTemplate, mistral, "mistral, as configured"},
		{"", nil, "hermes, as the server writes them for the chat template"},
		{"", mistral, "mistral, as configured; conversations have hermes"},
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
