package answer

import (
	"math"
	"strconv"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
)

// scored holds tokens, their log-probabilities and the top tokens at their positions. logprobs and
// top may be shorter than tokens: the last tokens then have no known values.
type scored struct {
	tokens   []kv.Token
	logprobs []float32 // NaN: none, as for the first token of a prompt
	top      [][]engine.TokenLogprob
}

// known returns the log-probability of token i and whether it has one.
func (s *scored) known(i int) (float32, bool) {
	if i >= len(s.logprobs) || math.IsNaN(float64(s.logprobs[i])) {
		return 0, false
	}
	return s.logprobs[i], true
}

// best returns the top tokens at position i, the first ones if there are more than most says.
func (s *scored) best(i, most int) []engine.TokenLogprob {
	if i >= len(s.top) {
		return nil
	}
	return s.top[i][:min(most, len(s.top[i]))]
}

// appendList writes an array with one element, written by each, per token.
func (s *scored) appendList(dst []byte, each func(dst []byte, i int) []byte) []byte {
	return jsontext.AppendArray(dst, len(s.tokens), each)
}

// completionLogprobs writes the logprobs object of /v1/completions for the tokens of s. offset is the
// number of code points in the choice's text before the first token, afterwards the number up to and
// including the last token.
func (a *Answer) completionLogprobs(dst []byte, s *scored, offset *int) []byte {
	dst = append(dst, `{"tokens":`...)
	dst = s.appendList(dst, func(dst []byte, i int) []byte { return a.names.append(dst, s.tokens[i]) })
	dst = append(dst, `,"token_logprobs":`...)
	dst = s.appendList(dst, func(dst []byte, i int) []byte {
		if f, ok := s.known(i); ok {
			return appendLogprob(dst, f)
		}
		return append(dst, "null"...)
	})
	dst = append(dst, `,"top_logprobs":`...)
	dst = s.appendList(dst, func(dst []byte, i int) []byte { return a.topObject(dst, s, i) })
	dst = append(dst, `,"text_offset":`...)
	dst = s.appendList(dst, func(dst []byte, i int) []byte {
		var at int
		at, *offset = a.names.place(s.tokens[i], *offset)
		return jsontext.AppendInt(dst, at)
	})
	return append(dst, '}')
}

// topObject writes the top tokens at position i by name, and the token at that position if it is
// not one of them. If two have the same name, the more probable one is written.
func (a *Answer) topObject(dst []byte, s *scored, i int) []byte {
	own, ok := s.known(i)
	if !ok {
		return append(dst, "null"...)
	}
	var written [engine.MaxTopLogprobs + 1]kv.Token
	n := 0
	entry := func(t kv.Token, f float32) {
		if a.names.among(t, written[:n]) {
			return
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(a.names.append(dst, t), ':')
		dst = appendLogprob(dst, f)
		written[n] = t
		n++
	}
	dst = append(dst, '{')
	for _, t := range s.best(i, a.params.TopLogprobs) {
		entry(t.Token, t.Logprob)
	}
	entry(s.tokens[i], own)
	return append(dst, '}')
}

// chatLogprobs writes the logprobs object of /v1/chat/completions for the tokens of s, null if s is
// nil.
func (a *Answer) chatLogprobs(dst []byte, s *scored) []byte {
	if s == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":`...)
	dst = s.appendList(dst, func(dst []byte, i int) []byte {
		f, _ := s.known(i)
		dst = a.chatToken(dst, s.tokens[i], f)
		dst = jsontext.AppendList(append(dst, `,"top_logprobs":`...), s.best(i, a.params.TopLogprobs), func(dst []byte, t engine.TokenLogprob) []byte {
			return append(a.chatToken(dst, t.Token, t.Logprob), '}')
		})
		return append(dst, '}')
	})
	return append(dst, `,"refusal":null}`...)
}

// chatToken writes a token's members and leaves the object open.
func (a *Answer) chatToken(dst []byte, t kv.Token, f float32) []byte {
	dst = append(dst, `{"token":`...)
	dst = a.names.appendText(dst, t)
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, f)
	dst = append(dst, `,"bytes":`...)
	return a.names.appendBytes(dst, t)
}

// scores returns the log-probabilities of the tokens of p, for other APIs.
func (a *Answer) scores(p *coppice.Piece) []conversation.Score {
	of := scored{tokens: p.Tokens, logprobs: p.Logprobs, top: p.Top}
	all := make([]conversation.Score, len(p.Tokens))
	for i, t := range p.Tokens {
		f, _ := of.known(i)
		all[i] = a.score(t, f)
		for _, b := range of.best(i, a.params.TopLogprobs) {
			all[i].Top = append(all[i].Top, a.score(b.Token, b.Logprob))
		}
	}
	return all
}

// score returns the log-probability f of t, which is finite.
func (a *Answer) score(t kv.Token, f float32) conversation.Score {
	text, _ := a.names.text(t)
	return conversation.Score{Bytes: []byte(text), Logprob: finite(f)}
}

// promptLogprobs writes vLLM's prompt_logprobs: for each prompt token an object with the top
// tokens by rank, and the prompt token itself, under their ids. The rank of a prompt token
// outside of the top is unknown.
func (a *Answer) promptLogprobs(dst []byte, s *scored) []byte {
	return s.appendList(dst, func(dst []byte, i int) []byte {
		f, ok := s.known(i)
		if !ok {
			return append(dst, "null"...)
		}
		dst = append(dst, '{')
		own := true
		for j, t := range s.best(i, a.params.PromptTop) {
			if j > 0 {
				dst = append(dst, ',')
			}
			own = own && t.Token != s.tokens[i]
			dst = a.promptToken(dst, t.Token, t.Logprob, j+1)
		}
		if own {
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = a.promptToken(dst, s.tokens[i], f, 0)
		}
		return append(dst, '}')
	})
}

// promptToken writes the member of prompt_logprobs for token t with log-probability f. A rank of 0
// means that the rank is unknown; it is left out.
func (a *Answer) promptToken(dst []byte, t kv.Token, f float32, rank int) []byte {
	dst = strconv.AppendUint(append(dst, '"'), uint64(t), 10)
	dst = append(dst, `":{"logprob":`...)
	dst = appendLogprob(dst, f)
	if rank > 0 {
		dst = jsontext.AppendInt(append(dst, `,"rank":`...), rank)
	}
	dst = append(dst, `,"decoded_token":`...)
	return append(a.names.append(dst, t), '}')
}

// leastLogprob replaces minus infinity, the logarithm of 0, which JSON can't express. OpenAI's
// answers use the same value.
const leastLogprob = -9999

// appendLogprob writes a log-probability; NaN and infinities become leastLogprob.
func appendLogprob(dst []byte, f float32) []byte { return jsontext.AppendFloat(dst, finite(f)) }

// finite returns f, or leastLogprob for NaN and infinities.
func finite(f float32) float32 {
	if v := float64(f); math.IsNaN(v) || math.IsInf(v, 0) {
		return leastLogprob
	}
	return f
}

// nan marks a missing log-probability.
var nan = float32(math.NaN())
