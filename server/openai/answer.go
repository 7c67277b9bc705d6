package openai

import (
	"slices"
	"strconv"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/kv"
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
		b[i] = hex[n>>(60-4*i)&0xf]
	}
	return string(b[:])
}

// answer is what a stream and a whole response have in common.
type answer struct {
	params  *Params
	head    Head
	chat    bool
	echo    bool
	names   naming
	prompts []asked

	calls             callMode // of a chat: what calls of tools its text may have
	reasoning, opened bool     // see SetReasoning
}

// callMode says what becomes of calls of tools in the text of an output.
type callMode uint8

const (
	noCalls     callMode = iota
	anyCalls             // they are taken out of the text
	oneCall              // likewise, and only the first counts
	forcedCalls          // the text is calls and nothing else
)

// asked is a prompt, as SetPrompt gave it, and what it took.
type asked struct {
	text   string
	tokens []kv.Token
	bill   coppice.Bill
}

func (c *Completion) answer(h Head, tok *tokenizer.Tokenizer) answer {
	return answer{params: &c.Params, head: h, echo: c.Echo, names: naming{tok: tok}, prompts: make([]asked, len(c.Prompts))}
}

func (c *Chat) answer(h Head, tok *tokenizer.Tokenizer) answer {
	return answer{params: &c.Params, head: h, chat: true, names: naming{tok: tok}, prompts: make([]asked, 1), calls: c.calls}
}

// SetReasoning has reasoning taken out of the text, before the first Piece; opened is
// whether the prompt ends with the tag that begins it. Outputs that a grammar holds to calls
// have none.
func (a *answer) SetReasoning(opened bool) {
	if a.calls != forcedCalls {
		a.reasoning, a.opened = true, opened
	}
}

// SetPrompt says what prompt i is, before its first Piece: its text if the answer
// repeats it (Completion.Echo), its tokens if it shows them (WantsPromptTokens). The
// tokens are not changed any more.
func (a *answer) SetPrompt(i int, text string, tokens []kv.Token) {
	a.prompts[i].text, a.prompts[i].tokens = text, tokens
}

// cut is p without its output, if none was asked for.
func (a *answer) cut(p *coppice.Piece) *coppice.Piece {
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

// Usage is the bill of what has ended so far.
func (a *answer) Usage() (u Usage) {
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

// Usage counts tokens. A prompt that is continued several times counts once, and as
// cached what the choice found that found least: the others find what that one computed.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // of them, taken from the cache
	CachedByTier     [kv.Tiers]int
	CompletionTokens int
}

func (u Usage) append(dst []byte) []byte {
	dst = append(u.appendCounts(dst), `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = appendInt(dst, u.CachedTokens)
	dst = u.appendTiers(dst)
	return append(dst, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

// appendTiers says in which tiers the cached tokens were, if any of them was in one below
// the device. It is an extension: OpenAI's interface does not have the field.
func (u Usage) appendTiers(dst []byte) []byte {
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
		dst = appendString(dst, kv.Tier(t).String())
		dst = appendInt(append(dst, ':'), n)
		comma = true
	}
	return append(dst, '}')
}

// appendCounts leaves the object open. What was cached is known when a request has ended.
func (u Usage) appendCounts(dst []byte) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = appendInt(dst, u.PromptTokens)
	dst = append(dst, `,"completion_tokens":`...)
	dst = appendInt(dst, u.CompletionTokens)
	dst = append(dst, `,"total_tokens":`...)
	return appendInt(dst, u.PromptTokens+u.CompletionTokens)
}

// appendHead writes what comes before the choices, the object left open.
func (a *answer) appendHead(dst []byte, object string) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, a.head.ID)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, a.head.Created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, a.head.Model)
	dst = append(dst, `,"system_fingerprint":`...)
	return appendOptional(dst, a.head.Fingerprint)
}

// appendFinish writes finish_reason and vLLM's stop_reason: the stop string or the id
// of the stop token of the request that ended the output, null for the model's own. called
// is whether the output calls tools.
func (a *answer) appendFinish(dst []byte, e *coppice.Ending, called bool) []byte {
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
			return appendString(dst, e.StopString)
		}
		if n := len(e.Tokens); n > 0 && e.OutputTokens > 0 && slices.Contains(a.params.request.StopTokens, e.Tokens[n-1]) {
			return strconv.AppendUint(dst, uint64(e.Tokens[n-1]), 10)
		}
	}
	return append(dst, "null"...)
}
