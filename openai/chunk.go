package openai

import (
	"encoding/json"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
)

// Chunk is one event of a stream, of a completion or a chat.
type Chunk struct {
	Choices []Choice        `json:"choices"`
	Usage   *Usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"` // SGLang's errors are flat: next to "object": "error"
	Object  string          `json:"object"`
}

// Choice is one output of a Chunk.
type Choice struct {
	Text         string     `json:"text"`
	Delta        Delta      `json:"delta"`
	FinishReason string     `json:"finish_reason"`
	TokenIDs     []kv.Token `json:"token_ids"` // of vLLM and Coppice, with return_token_ids
}

// Delta holds the fields of a chat's choice. Reasoning has two names, vLLM's older and newer
// one.
type Delta struct {
	Content          string          `json:"content"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
}

// Message is a turn of a conversation in its simplest form.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Read decodes the data of an event, reusing the memory of the previous one.
func (c *Chunk) Read(data []byte) error {
	clear(c.Choices[:cap(c.Choices)]) // the decoder would keep old values of absent fields
	*c = Chunk{Choices: c.Choices[:0]}
	return json.Unmarshal(data, c)
}

// Fault returns the error in the chunk, nil if there is none.
func (c *Chunk) Fault() []byte {
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null":
		return c.Error
	case c.Object == "error":
		return []byte(c.Message)
	}
	return nil
}

// HasOutput reports whether the choice contains output.
func (c *Choice) HasOutput() bool {
	d := &c.Delta
	calls := len(d.ToolCalls) > 0 && string(d.ToolCalls) != "null" && string(d.ToolCalls) != "[]"
	return c.Text != "" || d.Content != "" || d.ReasoningContent != "" || d.Reasoning != "" || calls || len(c.TokenIDs) > 0
}

// Ping is a comment in a stream of server-sent events, which clients leave out (HTML standard, "Interpreting an event stream").
const Ping = ": ping\n\n"

// Usage is [conversation.Usage] in OpenAI's form.
type Usage conversation.Usage

// UnmarshalJSON decodes the usage of any OpenAI-compatible server, without the tiers.
func (u *Usage) UnmarshalJSON(text []byte) error {
	var wire struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached *int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Drafts struct {
			Accepted int `json:"accepted_prediction_tokens"`
			Rejected int `json:"rejected_prediction_tokens"`
		} `json:"completion_tokens_details"`
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		return err
	}
	*u = Usage{PromptTokens: wire.Prompt, CompletionTokens: wire.Completion, CachedTokens: -1}
	u.AcceptedDrafts, u.RejectedDrafts = wire.Drafts.Accepted, wire.Drafts.Rejected
	if wire.Details.Cached != nil {
		u.CachedTokens = *wire.Details.Cached
	}
	return nil
}

// Append writes the usage of a whole answer.
func (u Usage) Append(dst []byte) []byte {
	dst = append(u.AppendCounts(dst), `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = jsontext.AppendInt(dst, u.CachedTokens)
	dst = u.AppendTiers(dst)
	dst = append(dst, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":`...)
	dst = jsontext.AppendInt(dst, u.AcceptedDrafts)
	dst = append(dst, `,"rejected_prediction_tokens":`...)
	return append(jsontext.AppendInt(dst, u.RejectedDrafts), "}}"...)
}

// AppendTiers writes the number of cached tokens per tier, if any were in a tier below the
// device. The field is an extension of OpenAI's API.
func (u Usage) AppendTiers(dst []byte) []byte {
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

// AppendCounts writes the counts known before a request has ended, without cached tokens, and
// leaves the object open.
func (u Usage) AppendCounts(dst []byte) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = jsontext.AppendInt(dst, u.PromptTokens)
	dst = append(dst, `,"completion_tokens":`...)
	dst = jsontext.AppendInt(dst, u.CompletionTokens)
	dst = append(dst, `,"total_tokens":`...)
	return jsontext.AppendInt(dst, u.PromptTokens+u.CompletionTokens)
}
