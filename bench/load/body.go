package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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

// Segment is a piece of a prompt, as token ids or as text.
type Segment struct {
	Tokens []kv.Token // if empty, Text is used
	Text   string
	Words  int // number of words in made-up text; 0 if unknown
}

// Len returns the number of token ids, else of words; 0 if neither is known.
func (s *Segment) Len() int { return len(s.Tokens) + s.Words }

// dialogue accumulates the segments of a session. It is the prompt of the next request,
// in each of the forms that endpoints take.
type dialogue struct {
	tokens   []kv.Token
	text     strings.Builder
	messages []openai.Message
	length   int // sum of the segments' Len
}

// add appends a segment with a role; an empty segment is left out. Completions have no roles:
// there tokens are concatenated, and texts joined by a line feed.
func (d *dialogue) add(role string, s *Segment) {
	if len(s.Tokens) == 0 && s.Text == "" {
		return
	}
	d.length += s.Len()
	d.tokens = append(d.tokens, s.Tokens...)
	d.messages = append(d.messages, openai.Message{Role: role, Content: s.Text})
	if s.Text != "" {
		if d.text.Len() > 0 {
			d.text.WriteByte('\n')
		}
		d.text.WriteString(s.Text)
	}
}

// Options are common to all requests of a run.
type Options struct {
	Temperature *float64 // nil leaves it to the server
	IgnoreEOS   bool     // ignore_eos: output of exactly the length asked for; known to vLLM, SGLang and ours
	// NoUsage omits stream_options, for servers that refuse it. Tokens are then
	// counted by chunks.
	NoUsage bool
	// Extra holds further fields of the body. They replace fields of the same name.
	Extra map[string]json.RawMessage

	tokenIDs bool // ask for the token ids of the output (return_token_ids)
}

// body appends the JSON of a request to dst: to the endpoint e, with the prompt d. most is the
// limit on output tokens, at least 1.
func (o *Options) body(dst []byte, e Endpoint, model string, d *dialogue, most int) []byte {
	b := fields{dst: append(dst, '{'), extra: o.Extra}
	if b.field("model") {
		b.text(model)
	}
	switch {
	case e == Chat:
		if b.field("messages") {
			b.value(d.messages)
		}
	case b.field("prompt"):
		if len(d.tokens) == 0 {
			b.text(d.text.String())
			break
		}
		for i, t := range d.tokens {
			b.dst = strconv.AppendInt(append(b.dst, "[,"[min(i, 1)]), int64(t), 10)
		}
		b.dst = append(b.dst, ']')
	}
	if b.field("max_tokens") {
		b.dst = strconv.AppendInt(b.dst, int64(most), 10)
	}
	if o.Temperature != nil && b.field("temperature") {
		b.dst = strconv.AppendFloat(b.dst, *o.Temperature, 'f', -1, 64)
	}
	if b.field("stream") {
		b.dst = append(b.dst, "true"...)
	}
	if !o.NoUsage && b.field("stream_options") {
		b.dst = append(b.dst, `{"include_usage":true}`...)
	}
	if o.IgnoreEOS && b.field("ignore_eos") {
		b.dst = append(b.dst, "true"...)
	}
	if o.tokenIDs && b.field("return_token_ids") {
		b.dst = append(b.dst, "true"...)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Extra)) {
		b.begin(name)
		b.dst = append(b.dst, o.Extra[name]...)
	}
	return append(b.dst, '}')
}

// fields writes the fields of a JSON object.
type fields struct {
	dst   []byte
	extra map[string]json.RawMessage
	any   bool // a field was written: the next one needs a comma
}

// field begins the field of this name and returns true. If an extra field replaces it, field
// writes nothing and returns false.
func (f *fields) field(name string) bool {
	if _, replaced := f.extra[name]; replaced {
		return false
	}
	f.begin(name)
	return true
}

func (f *fields) begin(name string) {
	if f.any {
		f.dst = append(f.dst, ',')
	}
	f.any = true
	f.text(name)
	f.dst = append(f.dst, ':')
}

func (f *fields) text(s string) { f.value(s) }

// value appends a value as JSON. It panics on values without a JSON form.
func (f *fields) value(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("load: strings that have no JSON: %v", err))
	}
	f.dst = append(f.dst, text...)
}
