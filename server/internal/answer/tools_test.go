package answer

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall"
)

// TestToolsOfAnswer: an answer names the tools that it calls, in order, and none where calls do not count.
func TestToolsOfAnswer(t *testing.T) {
	const text = `Well <tool_call>{"name": "read", "arguments": {}}</tool_call><tool_call>{"name": "run", "arguments": {"x":1}}</tool_call>`
	for _, tc := range []struct {
		calls conversation.Calls
		want  []string
	}{{conversation.AnyCalls, []string{"read", "run"}}, {conversation.NoCalls, nil}} {
		out := (&Answer{calls: tc.calls, form: toolcall.Hermes}).newParser()
		if out != nil {
			split(out, text)
		}
		if got := out.tools(); !slices.Equal(got, tc.want) {
			t.Errorf("calls %v: the answer calls %q, want %q", tc.calls, got, tc.want)
		}
	}
}
