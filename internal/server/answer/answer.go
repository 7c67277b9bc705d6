package answer

import (
	"slices"
	"strconv"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Head is what an answer, and each chunk of a stream, begins with.
type Head struct {
	ID          string // CompletionID, ChatID
	Created     int64  // Unix seconds
	Model       string
	Fingerprint string // of the model and how it runs; "" is null
}

// CompletionID is the id of an answer of /v1/completions, made of a random number.
func CompletionID(random uint64) string { return "cmpl-" + sixteen(random) }

// ChatID is the id of an answer of /v1/chat/completions.
func ChatID(random uint64) string { return "chatcmpl-" + sixteen(random) }

func sixteen(n uint64) string {
	var b [16]byte
	for i := range b {
		b[i] = jsontext.Hex[n>>(60-4*i)&0xf]
	}
	return string(b[:])
}

// Answer is what a stream and a whole response have in common.
type Answer struct {
	params  *openai.Params
	head    Head
	chat    bool
	echo    bool
	names   naming
	prompts []asked

	calls             openai.Calls // of a chat: what calls of tools its text may have
	reasoning, opened bool         // see SetReasoning
}

// asked is a prompt, as SetPrompt gave it, and what it took.
type asked struct {
	text   string
	tokens []kv.Token
	bill   coppice.Bill
}

// Completion begins the answer to c. tok names tokens; nil calls them "token_id:5".
func Completion(c *openai.Completion, h Head, tok *tokenizer.Tokenizer) *Answer {
	return &Answer{params: &c.Params, head: h, echo: c.Echo, names: naming{tok: tok}, prompts: make([]asked, len(c.Prompts))}
}

// Chat begins the answer to c. tok names tokens; nil calls them "token_id:5".
func Chat(c *openai.Chat, h Head, tok *tokenizer.Tokenizer) *Answer {
	return &Answer{params: &c.Params, head: h, chat: true, names: naming{tok: tok}, prompts: make([]asked, 1), calls: c.Calls}
}

// SetReasoning has reasoning taken out of the text, before the first Piece; opened is
// whether the prompt ends with the tag that begins it. Outputs that a grammar holds to calls
// have none.
func (a *Answer) SetReasoning(opened bool) {
	if a.calls != openai.ForcedCalls {
		a.reasoning, a.opened = true, opened
	}
}

// SetPrompt says what prompt i is, before its first Piece: its text if the answer
// repeats it (Completion.Echo), its tokens if it shows them (WantsPromptTokens). The
// tokens are not changed any more.
func (a *Answer) SetPrompt(i int, text string, tokens []kv.Token) {
	a.prompts[i].text, a.prompts[i].tokens = text, tokens
}

// cut is p without its output, if none was asked for.
func (a *Answer) cut(p *coppice.Piece) *coppice.Piece {
	if !a.params.NoOutput {
		return p
	}
	q := coppice.Piece{Sample: p.Sample, PromptLogprobs: p.PromptLogprobs, PromptTop: p.PromptTop, Ending: p.Ending, Final: p.Final}
	if e := p.Ending; e != nil {
		ending := *e
		ending.OutputTokens, ending.StopString = 0, ""
		if ending.Reason == coppice.Stop {
			ending.Reason = coppice.Length
		}
		q.Ending = &ending
	}
	return &q
}

// Usage is the sum of the bills of what has ended so far.
func (a *Answer) Usage() (u openai.Usage) {
	for i := range a.prompts {
		b := &a.prompts[i].bill
		u.PromptTokens += b.PromptTokens
		u.CachedTokens += b.CachedTokens
		for t, n := range b.CachedByTier {
			u.CachedByTier[t] += n
		}
		u.CompletionTokens += b.OutputTokens
	}
	return u
}

// appendHead writes what comes before the choices, the object left open.
func (a *Answer) appendHead(dst []byte, object string) []byte {
	dst = append(dst, `{"id":`...)
	dst = jsontext.AppendString(dst, a.head.ID)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, a.head.Created, 10)
	dst = append(dst, `,"model":`...)
	dst = jsontext.AppendString(dst, a.head.Model)
	dst = append(dst, `,"system_fingerprint":`...)
	return jsontext.AppendOptional(dst, a.head.Fingerprint)
}

// appendFinish writes finish_reason and vLLM's stop_reason: the stop string or the id
// of the stop token of the request that ended the output, null for the model's own. called
// is whether the output calls tools.
func (a *Answer) appendFinish(dst []byte, e *coppice.Ending, called bool) []byte {
	dst = append(dst, `"finish_reason":`...)
	switch {
	case e == nil:
		return append(dst, "null"...)
	case e.Reason == coppice.Stop && called:
		dst = append(dst, `"tool_calls"`...)
	case e.Reason == coppice.Stop:
		dst = append(dst, `"stop"`...)
	case e.Reason == coppice.Length:
		dst = append(dst, `"length"`...)
	default: // the server answers with the error instead
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"stop_reason":`...)
	if e.Reason == coppice.Stop {
		if e.StopString != "" {
			return jsontext.AppendString(dst, e.StopString)
		}
		if n := len(e.Tokens); n > 0 && e.OutputTokens > 0 && slices.Contains(a.params.StopTokens, e.Tokens[n-1]) {
			return strconv.AppendUint(dst, uint64(e.Tokens[n-1]), 10)
		}
	}
	return append(dst, "null"...)
}
