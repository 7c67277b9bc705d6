package openai

import (
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// Explain is a request to /v1/cache/explain: a completion or a chat that is not to run. The other
// field is nil.
type Explain struct {
	Completion *Completion
	Chat       *Chat
}

// DecodeExplain decodes the body of a request to /v1/cache/explain: with messages as DecodeChat
// does, else as DecodeCompletion. The error is an *conversation.Error. The result does not refer to body.
func DecodeExplain(body []byte, o Options) (_ *Explain, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v, d := jsonbody.Parse(body), newDecoder(RefuseUnknown)
	for _, f := range d.Object(v, "an object") {
		if string(f.Name) == "messages" {
			c, err := DecodeChat(body, o)
			return &Explain{Chat: c}, err
		}
	}
	c, err := DecodeCompletion(body, o)
	return &Explain{Completion: c}, err
}

// Params returns the parameters of the request.
func (e *Explain) Params() *conversation.Params {
	if e.Chat != nil {
		return &e.Chat.Params
	}
	return &e.Completion.Params
}
