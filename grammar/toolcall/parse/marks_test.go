package parse

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// TestMarks: the marks of a form that are control tokens are found, and no other control token.
func TestMarks(t *testing.T) {
	control := []string{"<s>", "</s>", "[INST]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]", "<|python_tag|>", "<|eot_id|>", "<|eom_id|>",
		"<tool_call>", "<|start|>", "<|channel|>", "<|call|>", "<｜tool▁sep｜>", "<｜User｜>", "<|tool_call_start|>"}
	for name, want := range map[string][]string{
		"hermes": {"<tool_call>"}, "mistral": {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, "mistral_args": {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
		"llama3_json": {"<|python_tag|>"}, "pythonic": {"<|python_tag|>", "<|tool_call_start|>"}, "functionary_v3.1": nil,
		"functionary_v3.2": nil, "deepseek_v3": {"<｜tool▁sep｜>"}, "deepseek_v31": {"<｜tool▁sep｜>"}, "openai": {"<|start|>", "<|channel|>", "<|call|>"},
	} {
		if got := Marks(toolcall.FormByName(name), control); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := Marks(toolcall.Hermes, nil); got != nil {
		t.Errorf("a vocabulary without control tokens has marks %q", got)
	}
}

// TestDocumented: the table in docs/grammar.md has all forms.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/grammar.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range toolcall.Forms() {
		if row := fmt.Sprintf("\n| `%s` | ", f.Name); !strings.Contains(string(text), row) {
			t.Errorf("no row for %s", f.Name)
		}
	}
}
