package toolcall

import (
	"strings"
	"testing"
)

// TestFormOf: each form is found in a conversation with a call in it, whatever white space a
// template puts there, and in no other.
func TestFormOf(t *testing.T) {
	for _, f := range Forms() {
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
		if FormByName(f.Name) != f {
			t.Errorf("no form is called %s", f.Name)
		}
	}
	for _, text := range []string{"", "assistant: called " + ProbeName, `<tool_call>{"name": "other", "arguments": {}}</tool_call>`} {
		if f := FormOf(text); f != nil {
			t.Errorf("%q is of form %s", text, f.Name)
		}
	}
	if FormByName("none") != nil {
		t.Error("there is a form none")
	}
}
