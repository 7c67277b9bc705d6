package answer

import (
	"fmt"
	"slices"
	"strconv"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/grammar/toolcall"
	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Head holds the fields at the beginning of an answer and of each chunk of a stream.
type Head struct {
	ID          string // from CompletionID or ChatID
	Created     int64  // Unix seconds
	Model       string
	Fingerprint string // identifies the model and its arithmetic; "" is written as null
}

// CompletionID returns the id of an answer of /v1/completions for a random number.
func CompletionID(random uint64) string { return fmt.Sprintf("cmpl-%016x", random) }

// ChatID returns the id of an answer of /v1/chat/completions for a random number.
func ChatID(random uint64) string { return fmt.Sprintf("chatcmpl-%016x", random) }

// Answer holds the state shared by Stream and Response.
type Answer struct {
	params  *conversation.Params
	shown   *openai.Shown
	head    Head
	chat    bool
	echo    bool
	names   naming
	prompts []promptState

	calls             conversation.Calls // whether and how the text of a chat may contain tool calls
	held              bool               // a grammar holds the calls to their form
	greedy            bool               // at temperature 0, where an output ends at a repeated call
	tools             []string           // names of the tools
	form              *toolcall.Form     // see SetForm
	marks             []string
	reasoning, opened bool // see SetReasoning
}

// promptState is a prompt, as given to SetPrompt, and its token counts.
type promptState struct {
	text   string
	tokens []kv.Token
	bill   coppice.Bill
}

// Completion begins the answer to c. tok names tokens; with nil, token 5 is named "token_id:5".
func Completion(c *openai.Completion, h Head, tok *tokenizer.Tokenizer) *Answer {
	return &Answer{params: &c.Params, shown: &c.Shown, head: h, echo: c.Echo, names: naming{tok: tok}, prompts: make([]promptState, len(c.Prompts))}
}

// Chat begins the answer to c. tok names tokens; with nil, token 5 is named "token_id:5".
func Chat(c *openai.Chat, h Head, tok *tokenizer.Tokenizer) *Answer {
	a := ofTurn(&c.Turn)
	a.shown, a.head, a.names = &c.Shown, h, naming{tok: tok}
	return &a
}

// defaultForm is the form of tool calls until SetForm.
var defaultForm = toolcall.Hermes

// SetForm gives the form of the tool calls of a chat, toolcall.Hermes by default. marks are the
// control tokens whose text the pieces have because of it. Call it before the first Piece.
func (a *Answer) SetForm(form *toolcall.Form, marks []string) { a.form, a.marks = form, marks }

// SetReasoning makes the answer separate reasoning from the text. Call it before the first
// Piece. opened says that the prompt itself ends with the opening tag. It has no effect on
// outputs that a grammar restricts to tool calls: these have no reasoning.
func (a *Answer) SetReasoning(opened bool) {
	if a.calls != conversation.ForcedCalls {
		a.reasoning, a.opened = true, opened
	}
}

// SetPrompt gives prompt i before its first Piece: its text if the answer repeats it
// (Completion.Echo), its tokens if the answer shows them (WantsPromptTokens). The caller must
// not change the tokens afterwards.
func (a *Answer) SetPrompt(i int, text string, tokens []kv.Token) {
	a.prompts[i].text, a.prompts[i].tokens = text, tokens
}

// cut returns p, or a copy of p without output if the request asked for none (max_tokens 0).
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

// unstopped returns the tokens of an ended output and of its prompt, without a control token that stopped it.
func (a *Answer) unstopped(e *coppice.Ending) []kv.Token {
	n := len(e.Tokens)
	if tok := a.names.tok; e.Reason == coppice.Stop && n > e.PromptTokens && tok != nil && tok.Special(e.Tokens[n-1]) {
		n--
	}
	return e.Tokens[:n]
}

// Usage returns the token counts of all outputs that have ended so far.
func (a *Answer) Usage() (u conversation.Usage) {
	for i := range a.prompts {
		b := &a.prompts[i].bill
		u.PromptTokens += b.PromptTokens
		u.CachedTokens += b.CachedTokens
		for t, n := range b.CachedByTier {
			u.CachedByTier[t] += n
		}
		u.CompletionTokens += b.OutputTokens
		u.AcceptedDrafts += b.Accepted
		u.RejectedDrafts += b.Drafted - b.Accepted
	}
	return u
}

// appendHead writes the fields before the choices and leaves the object open.
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

// completionChoice writes a choice of /v1/completions with this index and text, up to stop_reason,
// and leaves the object open. s and offset are as in completionLogprobs, s is nil if the request
// wants no log-probabilities; e is nil unless the choice has ended.
func (a *Answer) completionChoice(dst []byte, index int, text string, s *scored, offset *int, e *coppice.Ending) []byte {
	dst = append(dst, `{"text":`...)
	dst = jsontext.AppendString(dst, text)
	dst = append(dst, `,"index":`...)
	dst = jsontext.AppendInt(dst, index)
	dst = append(dst, `,"logprobs":`...)
	if s != nil {
		dst = a.completionLogprobs(dst, s, offset)
	} else {
		dst = append(dst, "null"...)
	}
	return a.appendFinish(append(dst, ','), e, false)
}

// appendFinish writes finish_reason and vLLM's stop_reason: the stop string, or the id of the
// request's stop token, that ended the output; null for the model's own end token. called
// reports that the output calls tools.
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
