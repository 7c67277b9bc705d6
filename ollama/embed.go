package ollama

import (
	"bufio"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/bail"
	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/internal/jsontext"
)

// maxInputs bounds the texts of a request for embeddings; a server may have a lower limit. maxDimensions bounds
// dimensions; a model has fewer.
const maxInputs, maxDimensions = 1 << 16, 1 << 20

// Embed is a request for embeddings.
type Embed struct {
	conversation.Params
	Inputs     []string // none of them empty
	Dimensions int      // 0: all
	Raw        bool     // do not normalise
}

// DecodeEmbed decodes the body of a request to /api/embed. The error is a *conversation.Error.
func DecodeEmbed(body []byte, o Options) (*Embed, error) { return decodeEmbed(body, o, "input", false) }

// DecodeEmbedding decodes the body of a request to /api/embeddings, the older form: one text, whose vector has the
// length that the model gives it.
func DecodeEmbedding(body []byte, o Options) (*Embed, error) {
	return decodeEmbed(body, o, "prompt", true)
}

// decodeEmbed decodes a request whose texts are in the field from. Without any, or with an empty text alone, it asks
// only to load the model.
func decodeEmbed(body []byte, o Options, from string, older bool) (_ *Embed, err error) {
	defer conversation.OfFault(&err)
	defer bail.Recover(&err)
	r, e := newReading(o), &Embed{Raw: older}
	fields := map[string]setter{
		from: func(r *reading, v value) {
			switch {
			case v.Raw[0] == '[' && !older:
				e.Inputs = r.Texts(v, maxInputs)
			case v.Raw[0] == '"':
				e.Inputs = []string{r.Text(v)}
			default:
				r.Want(v, "a string or an array of strings")
			}
			if len(e.Inputs) == 1 && e.Inputs[0] == "" {
				e.Inputs = nil
			}
			for i, s := range e.Inputs {
				if s == "" {
					r.Fail(v.Index(i), "invalid_value", "%s is empty, and an empty text has no embedding", v.Index(i))
				}
			}
		},
	}
	if !older {
		fields["dimensions"] = func(r *reading, v value) { e.Dimensions = int(r.Integer(v, 1, maxDimensions)) }
	}
	r.within("", jsonbody.Parse(body), fields, map[string]setter{"model": shared["model"], "options": shared["options"], "keep_alive": shared["keep_alive"]})
	if r.turn.Model == "" {
		r.Missing(jsonbody.Param("model"))
	}
	e.Params = r.turn.Params
	e.From.Prompt, e.Ignored = from, r.Skipped
	return e, nil
}

// WriteEmbeddings writes the answer of /api/embed, a vector at a time. Its error is the writer's.
func (w *Wire) WriteEmbeddings(out *bufio.Writer, model string, vectors [][]float32, u conversation.Usage) error {
	dst := jsontext.AppendString(append(out.AvailableBuffer(), `{"model":`...), model)
	out.Write(append(dst, `,"embeddings":[`...))
	for i, v := range vectors {
		dst := out.AvailableBuffer()
		if i > 0 {
			dst = append(dst, ',')
		}
		if _, err := out.Write(jsontext.AppendList(dst, v, jsontext.AppendFloat)); err != nil {
			return err
		}
	}
	dst = jsontext.AppendInt(append(out.AvailableBuffer(), `],"total_duration":`...), int64(w.now().Sub(w.begun)))
	dst = jsontext.AppendInt(append(dst, `,"load_duration":0,"prompt_eval_count":`...), u.PromptTokens)
	dst = jsontext.AppendInt(append(dst, `,"prompt_cached_count":`...), u.CachedTokens)
	out.Write(append(dst, '}'))
	return out.Flush()
}

// WriteEmbedding writes the answer of /api/embeddings: the first vector.
func (w *Wire) WriteEmbedding(out *bufio.Writer, _ string, vectors [][]float32, _ conversation.Usage) error {
	var first []float32
	if len(vectors) > 0 {
		first = vectors[0]
	}
	dst := jsontext.AppendList(append(out.AvailableBuffer(), `{"embedding":`...), first, jsontext.AppendFloat)
	out.Write(append(dst, '}'))
	return out.Flush()
}
