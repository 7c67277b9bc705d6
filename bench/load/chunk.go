package load

import (
	"encoding/json"
	"fmt"
)

// chunk is what one event of a stream holds, of completions and of chats.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"` // SGLang sends an error flat, beside "object": "error"
	Object  string          `json:"object"`
}

type choice struct {
	Text         string   `json:"text"`
	Delta        delta    `json:"delta"`
	FinishReason string   `json:"finish_reason"`
	TokenIDs     []uint32 `json:"token_ids"` // vLLM's and ours, with return_token_ids
}

// delta: reasoning has two names, vLLM's older and newer one.
type delta struct {
	Content          string          `json:"content"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	Details          *struct {
		CachedTokens *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// read takes the data of an event apart; what was read before is gone.
func (c *chunk) read(data []byte) error {
	clear(c.Choices[:cap(c.Choices)]) // the decoder would leave what no field replaces
	*c = chunk{Choices: c.Choices[:0]}
	if err := json.Unmarshal(data, c); err != nil {
		return fmt.Errorf("a chunk that is not of the OpenAI API: %w: %s", err, clip(data))
	}
	return nil
}

// fault is the error object of a chunk, "" without one.
func (c *chunk) fault() string {
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null":
		return clip(c.Error)
	case c.Object == "error":
		return clip([]byte(c.Message))
	}
	return ""
}

// output says whether the choice holds output, and how many tokens it names.
func (c *choice) output() (has bool, ids int) {
	calls := len(c.Delta.ToolCalls) > 0 && string(c.Delta.ToolCalls) != "null" && string(c.Delta.ToolCalls) != "[]"
	text := c.Text != "" || c.Delta.Content != "" || c.Delta.ReasoningContent != "" || c.Delta.Reasoning != ""
	return text || calls || len(c.TokenIDs) > 0, len(c.TokenIDs)
}

// mostClip is how much of a server's words an error repeats, in bytes.
const mostClip = 400

// clip makes a server's words fit for one line.
func clip(b []byte) string {
	dots := ""
	if len(b) > mostClip {
		b, dots = b[:mostClip], "..."
	}
	out := make([]rune, 0, len(b))
	for _, r := range string(b) {
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out) + dots
}
