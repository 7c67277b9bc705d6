package parse

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// TestFormOf: each form is found in a conversation with a call in it, whatever white space a
// template puts there, and in no other.
func TestFormOf(t *testing.T) {
	for _, f := range toolcall.Forms() {
		name := ProbeName
		if !f.Bare {
			name = `"` + name + `"`
		}
		call := f.Begin + f.Open + name + f.Arguments + ProbeArguments + f.Close + f.End
		switch {
		case f.Python:
			call = "[" + ProbeName + `(probe_key="probe_value")]`
		case f.Name == "openai":
			call = "<|start|>assistant to=functions." + ProbeName + "<|channel|>commentary json<|message|>" + ProbeArguments + "<|call|>"
		case f.Name == "mistral_args":
			call = f.Open + name + "[CALL_ID]123456789" + f.Arguments + ProbeArguments
		}
		for _, text := range []string{call, "user: go\n\n" + strings.ReplaceAll(call, `":`, `" : `) + "\n", "[INST]" + strings.ReplaceAll(call, "\n", " ")} {
			if got := FormOf(text); got != f {
				t.Errorf("%s: %q is of %+v", f.Name, text, got)
			}
		}
		if toolcall.FormByName(f.Name) != f {
			t.Errorf("no form is called %s", f.Name)
		}
	}
	for _, text := range []string{"", "assistant: called " + ProbeName, `<tool_call>{"name": "other", "arguments": {}}</tool_call>`} {
		if f := FormOf(text); f != nil {
			t.Errorf("%q is of form %s", text, f.Name)
		}
	}
	if toolcall.FormByName("none") != nil {
		t.Error("there is a form none")
	}
}

// TestFormOfTemplates: what the chat templates of models print around a call is told apart,
// although each has the tool in front, in words that look like a call of Llama 3.
//
// Sources: the templates of the models named, as llama.cpp keeps them in models/templates.
func TestFormOfTemplates(t *testing.T) {
	const tool = `{"type": "function", "function": {"name": "probe_tool", "description": "d", "parameters": {"type": "object", "properties": {}}}}` + "\n"
	for _, row := range []struct{ model, text, form string }{
		{"Qwen2.5", "<tool_call>\n" + `{"name": "probe_tool", "arguments": {"probe_key": "probe_value"}}` + "\n</tool_call>", "hermes"},
		{"Qwen2.5, arguments as a string", "<tool_call>\n" + `{"name": "probe_tool", "arguments": "{\"probe_key\":\"probe_value\"}"}` + "\n</tool_call>", "hermes"},
		{"Mistral-Nemo", `[TOOL_CALLS][{"name": "probe_tool", "arguments": {"probe_key": "probe_value"}, "id": "abcdefghi"}]`, "mistral"},
		{"Mistral-Small-3.2", `[TOOL_CALLS]probe_tool[CALL_ID]abcdefghi[ARGS]{"probe_key": "probe_value"}`, "mistral_args"},
		{"Llama-3.1", `{"name": "probe_tool", "parameters": {"probe_key": "probe_value"}}`, "llama3_json"},
		{"LFM2", "List of tools: <|tool_list_start|>[" + tool + "]<|tool_list_end|>", "pythonic"},
		{"GLM-4.6", "<tool_call>probe_tool\n<arg_key>probe_key</arg_key>\n<arg_value>probe_value</arg_value>\n</tool_call>", ""},
		{"Qwen3-Coder", "<tool_call>\n<function=probe_tool>\n<parameter=probe_key>\nprobe_value\n</parameter>\n</function>\n</tool_call>", ""},
		{"MiniMax-M2", `<minimax:tool_call><invoke name="probe_tool"><parameter name="probe_key">probe_value</parameter>`, ""},
		{"Kimi-K2", `<|tool_call_begin|>functions.probe_tool:0<|tool_call_argument_begin|>{"probe_key": "probe_value"}<|tool_call_end|>`, ""},
		{"Command-R7B", `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "probe_tool", "parameters": {"probe_key": "probe_value"}}]`, ""},
		{"Nemotron-Nano-v2", `<TOOLCALL>[{"name": "probe_tool", "arguments": {"probe_key": "probe_value"}}]</TOOLCALL>`, ""},
	} {
		form := ""
		if f := FormOf("<tools>\n" + tool + "</tools>\nuser: go\n" + row.text); f != nil {
			form = f.Name
		}
		if form != row.form {
			t.Errorf("%s writes calls of form %q, FormOf says %q", row.model, row.form, form)
		}
	}
}
