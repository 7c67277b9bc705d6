package ollama

import (
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Options configure the decoding of requests. The zero value refuses unknown fields.
type Options struct {
	// IgnoreUnknown ignores unknown fields, in place of a refusal.
	IgnoreUnknown bool
	// Sampling holds the defaults of sampling parameters. nil: temperature 1, and everything else off.
	Sampling *conversation.Sampling
	// CallForm is the name of the form of the model's tool calls, one of package toolcall's. "": hermes.
	CallForm string
}

// Chat is a request to /api/chat. Without messages it asks only to load the model, or to unload it.
type Chat struct {
	conversation.Turn
	Unload bool // keep_alive is 0
}

// Generate is a request to /api/generate: a turn that answers a single message, or one of the other forms
// below. Without any prompt it asks only to load the model, or to unload it.
type Generate struct {
	conversation.Turn
	Unload bool
	// Raw says that Text is the whole prompt, without the chat template.
	Raw  bool
	Text string
	// Context are the tokens of an earlier answer, which the prompt continues.
	Context []kv.Token
}

// Empty reports whether the request has nothing to answer.
func (g *Generate) Empty() bool { return g.Text == "" && len(g.Context) == 0 }

// DecodeChat decodes the body of a request to /api/chat. The error is a *conversation.Error. The result does
// not refer to body.
func DecodeChat(body []byte, o Options) (*Chat, error) {
	r, err := decode(body, o, chatFields)
	if err != nil {
		return nil, err
	}
	return &Chat{Turn: r.turn, Unload: r.unload}, nil
}

// DecodeGenerate decodes the body of a request to /api/generate, as [DecodeChat] does.
func DecodeGenerate(body []byte, o Options) (*Generate, error) {
	r, err := decode(body, o, generateFields)
	if err != nil {
		return nil, err
	}
	return r.generate(), nil
}

// decode reads a body with the setters of fields.
func decode(body []byte, o Options, fields map[string]setter) (_ *reading, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	// A copy: tools and arguments go to the template as raw JSON.
	v := jsonbody.Parse([]byte(string(body)))
	r := newReading(o)
	r.within("", v, fields, shared)
	if r.turn.Model == "" {
		r.Missing(jsonbody.Param("model"))
	}
	return r, r.finish(o.CallForm)
}

// generate returns what the fields of /api/generate say. The messages of the turn are the system prompt and
// the prompt.
func (r *reading) generate() *Generate {
	g := &Generate{Turn: r.turn, Unload: r.unload, Raw: r.raw, Text: r.prompt, Context: r.context}
	if g.Raw {
		g.Context = nil
		return g
	}
	if r.system != "" && len(g.Context) == 0 {
		g.Messages = append(g.Messages, chat.Message{Role: "system", Content: r.system})
	}
	g.Messages = append(g.Messages, chat.Message{Role: "user", Content: r.prompt})
	return g
}

// earlier is the answer that NextTurn puts in place of the one that a context has.
const earlier = "An earlier answer."

// NextTurn returns the conversation to render for the message that follows a context, and a function that
// returns what of the rendered text comes after the tokens of the context: everything after the text of the
// last answer. A template that changes that text gets the message as if it began a conversation.
func (g *Generate) NextTurn() (messages []chat.Message, rest func(rendered string) (text string, from int)) {
	messages = append([]chat.Message{{Role: "user", Content: "An earlier question."}, {Role: "assistant", Content: earlier}}, g.Messages...)
	return messages, func(rendered string) (string, int) {
		from := strings.Index(rendered, earlier) + len(earlier)
		if from < len(earlier) {
			from = 0
		}
		return rendered[from:], from
	}
}

// latest is the tag that names of models have in Ollama's API if none is given.
const latest = ":latest"

// Tagged returns the name of a model with a tag, as clients expect it in lists.
func Tagged(name string) string {
	if strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") {
		return name
	}
	return name + latest
}

// Untagged returns the name without the tag that [Tagged] adds.
func Untagged(name string) string { return strings.TrimSuffix(name, latest) }

// Peeked holds what a proxy needs to route a request. Messages is nil if there is nothing to answer.
type Peeked struct {
	Generate
	// Doubt says why the prompt may be a different one; nil if it is certain.
	Doubt error
}

// PeekChat decodes the body of a request to /api/chat leniently, because the worker judges the request. The
// error means that no worker could read the body. The result does not refer to body.
func PeekChat(body []byte) (*Peeked, error) { return peek(body, chatFields) }

// PeekGenerate does for /api/generate what [PeekChat] does for /api/chat.
func PeekGenerate(body []byte) (*Peeked, error) { return peek(body, generateFields) }

func peek(body []byte, fields map[string]setter) (_ *Peeked, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v := jsonbody.Parse([]byte(string(body)))
	r := newReading(Options{})
	r.Lenient, r.OfPrompt = true, true
	r.within("", v, fields, shared)
	p := &Peeked{Generate: Generate{Turn: r.turn}, Doubt: r.Doubt}
	if r.messages == nil {
		if p.Generate = *r.generate(); p.Empty() {
			p.Messages = nil
		}
	}
	return p, nil
}

// Shifted returns the offsets of plain that are left once a text has lost its first bytes up to from. plain
// ascends.
func Shifted(plain []int, from int) []int {
	var left []int
	for _, at := range plain {
		if at >= from {
			left = append(left, at-from)
		}
	}
	return left
}
