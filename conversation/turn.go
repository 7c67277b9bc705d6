package conversation

import (
	"strings"
	"unicode"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Turn asks for the model's next turn of a conversation.
type Turn struct {
	Params
	Messages []chat.Message // at least one
	// Options are the template's further inputs; the server adds Now.
	Options chat.Options
	// ContinueFinal makes the answer continue the last message; see CutFinal.
	ContinueFinal bool
	// Prediction is text that the output is expected to repeat in large parts. It changes the speed of the
	// output alone.
	Prediction string

	Calls Calls
	// ToolNames are the names of the tools that an output may call.
	ToolNames []string
}

// CutFinal removes from a rendered conversation everything that the template writes after the
// content of the last message, if ContinueFinal is set. It fails if the template does not write
// that content as it is.
//
// Source: continue_final_message of apply_chat_template, Hugging Face transformers.
func (t *Turn) CutFinal(rendered string) (string, error) {
	if !t.ContinueFinal || len(t.Messages) == 0 {
		return rendered, nil
	}
	content := t.Messages[len(t.Messages)-1].Content
	trimmed := strings.TrimSpace(content)
	at := strings.LastIndex(rendered, trimmed)
	if at < 0 {
		return "", Invalid("continue_final_message", "template_failed", "the chat template changes the text of the last message, so it can't be continued")
	}
	// Some templates trim the content, others do not.
	if open := strings.TrimLeftFunc(content, unicode.IsSpace); strings.HasPrefix(rendered[at:], open) {
		return rendered[:at+len(open)], nil
	}
	return rendered[:at+len(trimmed)], nil
}
