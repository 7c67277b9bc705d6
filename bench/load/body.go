package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
)

// Endpoint selects the endpoint of the OpenAI API.
type Endpoint uint8

const (
	Completions Endpoint = iota // /v1/completions; prompts as token ids or text
	Chat                        // /v1/chat/completions; prompts as messages
)

var endpoints = enum.New[Endpoint]("load", "endpoint", "completions", "chat")

// String returns the name in lower case.
func (e Endpoint) String() string { return endpoints.Name(e) }

// UnmarshalText accepts the names that String returns.
func (e *Endpoint) UnmarshalText(text []byte) error { return endpoints.Read(e, text) }

func (e Endpoint) path() string {
	if e == Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// Segment is a piece of a prompt, as token ids, as text, or as messages.
type Segment struct {
	Tokens []kv.Token // if empty, Text is used
	Text   string
	Words  int // number of words in made-up text; 0 if unknown
	// Messages are messages of a chat as JSON objects, for the endpoint Chat. If not nil, they
	// are used in place of Tokens and Text.
	Messages []json.RawMessage
}

// Len returns the number of token ids, else of words; 0 if neither is known.
func (s *Segment) Len() int { return len(s.Tokens) + s.Words }

// dialogue accumulates the segments of a session. It is the prompt of the next request,
// in each of the forms that endpoints take.
type dialogue struct {
	session  string // name of the session; "" if it has none
	tools    json.RawMessage
	tokens   []kv.Token
	text     []byte
	messages []json.RawMessage
	length   int  // sum of the segments' Len
	mark     mark // of the prompt that was sent last, with its answer if that is in the dialogue
}

// fork returns a copy of the dialogue that goes on under another name. Both may be extended: they
// share what they had in common.
func (d *dialogue) fork(session string) *dialogue {
	return &dialogue{
		session: session, tools: d.tools, length: d.length, mark: d.mark,
		tokens: slices.Clip(d.tokens), text: slices.Clip(d.text), messages: slices.Clip(d.messages),
	}
}

// key appends to b the bytes that stand for the prompt at the endpoint e: prompts that begin alike
// have keys that begin alike. A token takes tokenBytes; text stands for itself.
func (d *dialogue) key(b []byte, e Endpoint) []byte {
	if e != Chat && len(d.tokens) > 0 {
		return kv.AppendTokens(b, d.tokens)
	} else if e != Chat {
		return append(b, d.text...)
	}
	b = append(b, d.tools...)
	for _, m := range d.messages {
		b = append(b, m...)
	}
	return b
}

// tokenBytes is the length of a token in a key.
const tokenBytes = 4

// add appends a segment with a role; an empty segment is left out. Completions have no roles:
// there tokens are concatenated, and texts joined by a line feed.
func (d *dialogue) add(role string, s *Segment) {
	if s.Messages != nil {
		d.messages = append(d.messages, s.Messages...)
		return
	}
	if len(s.Tokens) == 0 && s.Text == "" {
		return
	}
	d.length += s.Len()
	d.tokens = append(d.tokens, s.Tokens...)
	d.messages = append(d.messages, message(role, s.Text))
	if s.Text != "" {
		if len(d.text) > 0 {
			d.text = append(d.text, '\n')
		}
		d.text = append(d.text, s.Text...)
	}
}

// take appends the message of a turn, or begins again with it.
func (d *dialogue) take(t *Turn) {
	if t.Whole {
		next := dialogue{session: d.session, tools: d.tools}
		if m := t.User.Messages; len(d.messages) > 0 && len(d.messages) <= len(m) && slices.EqualFunc(d.messages, m[:len(d.messages)], same) {
			next.mark = d.mark
		}
		*d = next
	}
	if t.Tools != nil {
		d.tools = t.Tools
	}
	d.add("user", &t.User)
}

// same reports whether two messages are the same bytes.
func same(a, b json.RawMessage) bool { return string(a) == string(b) }

// message returns the JSON of a message.
func message(role, content string) json.RawMessage {
	m, err := json.Marshal(openai.Message{Role: role, Content: content})
	if err != nil {
		panic(fmt.Sprintf("load: a message of two strings has no JSON: %v", err))
	}
	return m
}

// Options are common to all requests of a run.
type Options struct {
	Temperature *float64 // nil leaves it to the server
	IgnoreEOS   bool     // ignore_eos: output of exactly the length asked for; known to vLLM, SGLang and ours
	// NoUsage omits stream_options, for servers that refuse it. Tokens are then
	// counted by chunks.
	NoUsage bool
	// NoSessionNames omits the names of sessions: the header x-session-id and the field
	// prompt_cache_key.
	NoSessionNames bool
	// Extra holds further fields of the body. They replace fields of the same name.
	Extra map[string]json.RawMessage

	tokenIDs bool // ask for the token ids of the output (return_token_ids)
}

// request is the body of a request.
type request struct {
	Model         string            `json:"model"`
	Messages      []json.RawMessage `json:"messages,omitempty"` // chat only
	Tools         json.RawMessage   `json:"tools,omitempty"`    // chat only
	Prompt        any               `json:"prompt,omitempty"`   // completions only: token ids or text
	MaxTokens     int               `json:"max_tokens"`
	Temperature   *float64          `json:"temperature,omitempty"`
	Stream        bool              `json:"stream"`
	StreamOptions json.RawMessage   `json:"stream_options,omitempty"`
	IgnoreEOS     bool              `json:"ignore_eos,omitempty"`
	TokenIDs      bool              `json:"return_token_ids,omitempty"`
	CacheKey      string            `json:"prompt_cache_key,omitempty"`
}

// body returns the JSON of a request: to the endpoint e, with the prompt d. most is the limit on
// output tokens, at least 1. It panics on options without a JSON form, which Dial refuses.
func (o *Options) body(e Endpoint, model string, d *dialogue, most int) []byte {
	r := request{Model: model, MaxTokens: most, Temperature: o.Temperature, Stream: true, IgnoreEOS: o.IgnoreEOS, TokenIDs: o.tokenIDs, CacheKey: d.session}
	switch {
	case e == Chat:
		r.Messages, r.Tools = d.messages, d.tools
	case len(d.tokens) > 0:
		r.Prompt = d.tokens
	default:
		r.Prompt = string(d.text)
	}
	if !o.NoUsage {
		r.StreamOptions = json.RawMessage(`{"include_usage":true}`)
	}
	body, err := json.Marshal(r)
	if err == nil && len(o.Extra) > 0 {
		var fields map[string]json.RawMessage
		if err = json.Unmarshal(body, &fields); err == nil {
			maps.Copy(fields, o.Extra)
			body, err = json.Marshal(fields)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("load: options that have no JSON: %v", err))
	}
	return body
}
