package openai

import (
	"encoding/json"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
)

// Chunk is one event of a stream, of completions and of chats.
type Chunk struct {
	Choices []Choice        `json:"choices"`
	Usage   *Usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"` // SGLang sends an error flat, beside "object": "error"
	Object  string          `json:"object"`
}

// Choice is one of the outputs.
type Choice struct {
	Text         string     `json:"text"`
	Delta        Delta      `json:"delta"`
	FinishReason string     `json:"finish_reason"`
	TokenIDs     []kv.Token `json:"token_ids"` // vLLM's and ours, with return_token_ids
}

// Delta is what a chat's choice has more. Reasoning has two names, vLLM's older and newer one.
type Delta struct {
	Content          string          `json:"content"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
}

// Message is a turn of a conversation, as the usual client writes it.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Read takes the data of an event apart, in the memory of the one before.
func (c *Chunk) Read(data []byte) error {
	clear(c.Choices[:cap(c.Choices)]) // the decoder would leave what no field replaces
	*c = Chunk{Choices: c.Choices[:0]}
	return json.Unmarshal(data, c)
}

// Fault is the error that the chunk holds, nil without one.
func (c *Chunk) Fault() []byte {
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null":
		return c.Error
	case c.Object == "error":
		return []byte(c.Message)
	}
	return nil
}

// HasOutput reports whether the choice holds output.
func (c *Choice) HasOutput() bool {
	d := &c.Delta
	calls := len(d.ToolCalls) > 0 && string(d.ToolCalls) != "null" && string(d.ToolCalls) != "[]"
	return c.Text != "" || d.Content != "" || d.ReasoningContent != "" || d.Reasoning != "" || calls || len(c.TokenIDs) > 0
}

// Usage counts tokens. A prompt that is continued several times counts once, and as
// cached what the choice found that found least: the others find what that one computed.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // prompt tokens taken from the cache; read from a server that does not say: -1
	CachedByTier     [kv.Tiers]int
	CompletionTokens int
}

// UnmarshalJSON reads what any server says, but the tiers.
func (u *Usage) UnmarshalJSON(text []byte) error {
	var wire struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached *int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		return err
	}
	*u = Usage{PromptTokens: wire.Prompt, CompletionTokens: wire.Completion, CachedTokens: -1}
	if wire.Details.Cached != nil {
		u.CachedTokens = *wire.Details.Cached
	}
	return nil
}

// Append writes the usage of a whole answer.
func (u Usage) Append(dst []byte) []byte {
	dst = append(u.AppendCounts(dst), `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = jsontext.AppendInt(dst, u.CachedTokens)
	dst = u.appendTiers(dst)
	return append(dst, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

// appendTiers says in which tiers the cached tokens were, if any of them was in one below
// the device. It is an extension: OpenAI's interface does not have the field.
func (u Usage) appendTiers(dst []byte) []byte {
	below := 0
	for _, n := range u.CachedByTier[kv.TierHost:] {
		below += n
	}
	if below == 0 {
		return dst
	}
	dst = append(dst, `,"cached_tokens_by_tier":{`...)
	comma := false
	for t, n := range u.CachedByTier {
		if n == 0 {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(dst, kv.Tier(t).String())
		dst = jsontext.AppendInt(append(dst, ':'), n)
		comma = true
	}
	return append(dst, '}')
}

// AppendCounts leaves the object open. What was cached is known when a request has ended.
func (u Usage) AppendCounts(dst []byte) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = jsontext.AppendInt(dst, u.PromptTokens)
	dst = append(dst, `,"completion_tokens":`...)
	dst = jsontext.AppendInt(dst, u.CompletionTokens)
	dst = append(dst, `,"total_tokens":`...)
	return jsontext.AppendInt(dst, u.PromptTokens+u.CompletionTokens)
}
