package openai

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// maxDimensions bounds dimensions; a model has fewer.
const maxDimensions = 1 << 20

// Embeddings is a request to /v1/embeddings.
type Embeddings struct {
	conversation.Params
	Inputs     []Prompt // at least one, none of them empty
	Dimensions int      // 0: all
	Base64     bool     // write vectors as base64 of little-endian float32 values
	Raw        bool     // do not normalise
}

// DecodeEmbeddings decodes the body of a request to /v1/embeddings. The error is an *conversation.Error.
// The result does not refer to body.
func DecodeEmbeddings(body []byte, o Options) (_ *Embeddings, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	v, e := jsonbody.Parse(body), &Embeddings{}
	r := newReading(&e.Params, &Shown{}, o)
	r.From.Prompt = "input"
	own := map[string]setter{
		"normalize":     func(r *reading, v value) { e.Raw = !r.Flag(v) },
		"cache_salt":    extensions["cache_salt"],
		"priority":      extensions["priority"],
		"timeout":       own["timeout"],
		"queue_timeout": own["queue_timeout"],
		"public_tokens": own["public_tokens"],
	}
	r.within("", v, map[string]setter{
		"input": func(r *reading, v value) {
			e.Inputs = r.promptList(v)
			for i := range e.Inputs {
				at := place(v)
				if v.Raw[0] == '[' {
					at = v.Index(i)
				}
				if e.Inputs[i].Text == "" && len(e.Inputs[i].Tokens) == 0 {
					r.Fail(at, "invalid_value", "%s is empty, and an empty text has no embedding", at)
				}
			}
		},
		"model":           shared["model"],
		"user":            shared["user"],
		"encoding_format": func(r *reading, v value) { e.Base64 = r.OneOf(v, "float", "base64") == "base64" },
		"dimensions":      func(r *reading, v value) { e.Dimensions = int(r.Integer(v, 1, maxDimensions)) },
		"normalize":       own["normalize"],
		"cache_salt":      own["cache_salt"],
		"priority":        own["priority"],
		"nvext":           passed,
		"coppice":         func(r *reading, v value) { r.within("coppice.", v, own) },
	})
	if e.Inputs == nil {
		r.Missing(param("input"))
	}
	r.finish()
	return e, nil
}

// WriteEmbeddings writes the answer of /v1/embeddings, a vector at a time. Its error is the writer's.
func WriteEmbeddings(w *bufio.Writer, model string, vectors [][]float32, asBase64 bool, u conversation.Usage) error {
	w.WriteString(`{"object":"list","data":[`)
	var bytes []byte
	for i, v := range vectors {
		dst := w.AvailableBuffer()
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"object":"embedding","index":`...)
		dst = append(jsontext.AppendInt(dst, i), `,"embedding":`...)
		if asBase64 {
			bytes = appendLittleEndian(bytes[:0], v)
			dst = append(base64.StdEncoding.AppendEncode(append(dst, '"'), bytes), '"')
		} else {
			dst = jsontext.AppendList(dst, v, jsontext.AppendFloat)
		}
		if _, err := w.Write(append(dst, '}')); err != nil {
			return err
		}
	}
	dst := append(w.AvailableBuffer(), `],"model":`...)
	dst = jsontext.AppendString(dst, model)
	dst = jsontext.AppendInt(append(dst, `,"usage":{"prompt_tokens":`...), u.PromptTokens)
	dst = jsontext.AppendInt(append(dst, `,"total_tokens":`...), u.PromptTokens)
	dst = jsontext.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), u.CachedTokens)
	w.Write(append(Usage(u).AppendTiers(dst), "}}}"...))
	return w.Flush()
}

func appendLittleEndian(dst []byte, v []float32) []byte {
	for _, x := range v {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
	}
	return dst
}

// PeekEmbeddings resets p and decodes the body of a request to /v1/embeddings into it, the first input
// as its prompt. Errors are as for [PeekCompletion].
func PeekEmbeddings(body []byte, p *Peeked) error {
	q := p.begin()
	q.Params, q.Shown = &q.asCompletion.Params, &q.asCompletion.Shown
	q.MaxTokens = 1 // an embedding has no output; 0 would mean no limit
	if err := p.read(body, "input", nil); err != nil {
		return err
	}
	if q.OfPrompt = true; q.prompts == 0 {
		q.Missing(param("input"))
	}
	q.MaxTokens, q.N, q.bestOf = 1, 1, 0
	if p.Prompts, p.Truncated = q.prompts, q.cut; len(q.first) > 0 {
		p.Text, p.Tokens = q.first[0].Text, q.first[0].Tokens
	}
	p.end()
	return nil
}
