package openai

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// Peeked is what who passes a request on has to know of it: whom it is for and what
// its prompt is. It is read leniently, for another one judges the request: fields that
// are not known or have odd values count as not given, and what the prompt can't be
// told from is in Doubt. Of a body that [DecodeCompletion] or [DecodeChat] takes it
// says the same as they do, without a doubt.
//
// The zero value is ready; its memory is kept between uses.
type Peeked struct {
	// Most bounds the Tokens that are kept, 0 being [MaxPromptTokens]. It is the
	// caller's, and stays.
	Most int

	Model, User, CacheSalt string
	Stream                 bool
	PublicTokens           int // of the prompt, those that other salts may share
	N, BestOf              int // N is 1 if not given, BestOf 0
	OutputTokens           int // max_tokens, or max_completion_tokens; 0 if nothing bounds the output
	// SpecialTokens is add_special_tokens, which vLLM has; nil if not given.
	SpecialTokens *bool
	Hints         Hints

	// Of a completion: the first of its Prompts is Text, unless Tokens is not nil.
	Prompts   int
	Text      string
	Tokens    []kv.Token // in memory that the next Peek uses again
	Truncated bool       // there were more than Most

	// Of a chat. Messages and Options hold parts of the body as they are; the next
	// Peek uses the memory of Messages again.
	Messages      []chat.Message
	Options       chat.Options
	ContinueFinal bool

	// Doubt says why the prompt is perhaps another one; nil if it is not.
	Doubt error

	given [fieldCount]given
	order int // of the fields so far
	buf   []byte
	kept  []kv.Token
	last  struct{ model, user, salt string } // often those of the next request too
	flag  bool                               // where SpecialTokens points to
}

// given is a field's last value, as it is written, and when its name first came.
type given struct {
	raw     []byte // nil if null
	escaped bool
	order   int // 0 if it did not come
}

func (g *given) is(first byte) bool { return len(g.raw) > 0 && g.raw[0] == first }

// peekField numbers the fields that are looked at after all have been seen.
type peekField int

const (
	noField peekField = iota
	fieldModel
	fieldUser
	fieldSalt
	fieldStream
	fieldN
	fieldBestOf
	fieldMaxTokens
	fieldMaxCompletion
	fieldSpecial
	fieldCoppice
	fieldPriority
	fieldNvext
	fieldTruncate
	fieldEmbeds
	fieldTemplate
	fieldTools
	fieldToolChoice
	fieldGenerate
	fieldContinue
	fieldDocuments
	fieldEffort
	fieldKwargs
	fieldCount
)

func peekFieldOf(name []byte, chats bool) peekField {
	switch string(name) {
	case "model":
		return fieldModel
	case "user":
		return fieldUser
	case "cache_salt":
		return fieldSalt
	case "stream":
		return fieldStream
	case "n":
		return fieldN
	case "max_tokens":
		return fieldMaxTokens
	case "add_special_tokens":
		return fieldSpecial
	case "coppice":
		return fieldCoppice
	case "priority":
		return fieldPriority
	case "nvext":
		return fieldNvext
	case "truncate_prompt_tokens":
		return fieldTruncate
	case "best_of":
		return fieldBestOf
	}
	if !chats {
		if string(name) == "prompt_embeds" {
			return fieldEmbeds
		}
		return noField
	}
	switch string(name) {
	case "max_completion_tokens":
		return fieldMaxCompletion
	case "chat_template":
		return fieldTemplate
	case "tools":
		return fieldTools
	case "tool_choice":
		return fieldToolChoice
	case "add_generation_prompt":
		return fieldGenerate
	case "continue_final_message":
		return fieldContinue
	case "documents":
		return fieldDocuments
	case "reasoning_effort":
		return fieldEffort
	case "chat_template_kwargs":
		return fieldKwargs
	}
	return noField
}

// Memory that is kept between uses is bounded: one long prompt is not paid for ever.
const (
	keptTokens   = 1 << 18
	keptMessages = 1 << 10
	keptBytes    = 1 << 18
	keptName     = 256
)

// Reset forgets the request, but not Most and the memory.
func (p *Peeked) Reset() {
	if cap(p.kept) > keptTokens {
		p.kept = nil
	}
	if cap(p.buf) > keptBytes {
		p.buf = nil
	}
	messages := p.Messages
	clear(messages) // there is nothing behind them
	if cap(messages) > keptMessages {
		messages = nil
	}
	for _, name := range []struct{ is, was *string }{{&p.Model, &p.last.model}, {&p.User, &p.last.user}, {&p.CacheSalt, &p.last.salt}} {
		if *name.is != "" && len(*name.is) <= keptName {
			*name.was = *name.is
		}
	}
	*p = Peeked{Most: p.Most, buf: p.buf, kept: p.kept, last: p.last, Messages: messages[:0]}
}

// PeekCompletion reads the body of a request to /v1/completions into p, which it
// resets. The error, an *Error of status 400, is for what no worker could read: a body
// that is no JSON object, or ends before its end. p keeps nothing of body.
func PeekCompletion(body []byte, p *Peeked) error {
	if err := p.peek(body, false); err != nil {
		p.Reset()
		return err
	}
	p.OutputTokens = p.limit(fieldMaxTokens, defaultCompletionTokens)
	if p.given[fieldEmbeds].raw != nil {
		p.doubt("prompt_embeds is given: a prompt that is no tokens")
	} else if p.Prompts == 0 {
		p.doubt("prompt is missing")
	}
	p.given = [fieldCount]given{}
	return nil
}

// PeekChat reads the body of a request to /v1/chat/completions into p, which it resets.
// The error is that of [PeekCompletion]. Parts of body stay in p: it is not to be
// changed until the next Reset.
func PeekChat(body []byte, p *Peeked) error {
	if err := p.peek(body, true); err != nil {
		p.Reset()
		return err
	}
	p.OutputTokens = p.limit(fieldMaxCompletion, p.limit(fieldMaxTokens, 0))
	p.conversation()
	p.given = [fieldCount]given{}
	return nil
}

// peek goes through the members of body. Prompts and messages are read where they
// stand, other fields when it is known which of them were the last of their name.
func (p *Peeked) peek(body []byte, chats bool) error {
	p.Reset()
	s := scanner{b: body}
	if !s.enter('{') {
		return notJSON(body, &s)
	}
	for i := 0; ; i++ {
		name, ok := s.member(i)
		if !ok {
			break
		}
		switch {
		case chats && string(name) == "messages":
			p.Doubt = nil
			p.messages(&s)
		case !chats && string(name) == "prompt":
			p.Doubt = nil
			p.prompt(&s)
		default:
			if f := peekFieldOf(name, chats); f == noField {
				s.skip()
			} else {
				p.take(&s, &p.given[f])
			}
		}
	}
	if s.broken || s.next() != 0 || s.at < len(body) {
		return notJSON(body, &s)
	}
	p.Model = p.name(fieldModel, p.last.model)
	p.User = p.name(fieldUser, p.last.user)
	p.salt()
	p.hints()
	p.Stream = p.given[fieldStream].is('t')
	p.N, p.BestOf = p.count(fieldN, 1), p.count(fieldBestOf, 0)
	if g := &p.given[fieldSpecial]; g.is('t') || g.is('f') {
		p.flag = g.is('t')
		p.SpecialTokens = &p.flag
	}
	if p.given[fieldTruncate].raw != nil {
		p.doubt("truncate_prompt_tokens is given, which the worker may follow")
	}
	return nil
}

// notJSON says what is wrong as the strict reader does, which may see it elsewhere.
func notJSON(body []byte, s *scanner) *Error {
	if shallow(body) {
		if _, fault := parse(body); fault != nil {
			return fault
		}
	}
	return invalid("", "invalid_json", "the body is not a JSON object: it can't be read beyond byte %d", s.at)
}

// take notes the value at s as the last one of its name.
func (p *Peeked) take(s *scanner, g *given) {
	if g.order == 0 {
		p.order++
		g.order = p.order
	}
	g.raw, g.escaped = s.skip()
	if len(g.raw) > 0 && g.raw[0] == 'n' {
		g.raw = nil
	}
}

func (p *Peeked) doubt(format string, args ...any) {
	if p.Doubt == nil {
		p.Doubt = fmt.Errorf("openai: "+format, args...)
	}
}

// count is a field that is a positive integer, or else v.
func (p *Peeked) count(f peekField, v int) int { return p.given[f].count(v) }

func (g *given) count(v int) int {
	if raw := g.raw; len(raw) > 0 && '1' <= raw[0] && raw[0] <= '9' {
		if n, ok := whole(raw); ok && 1 <= n && n <= math.MaxInt32 {
			return int(n)
		}
	}
	return v
}

// limit is count for a limit of the output, where 0 takes the node one token.
func (p *Peeked) limit(f peekField, v int) int {
	if raw := p.given[f].raw; len(raw) > 0 && (raw[0] == '0' || raw[0] == '-') {
		if n, ok := whole(raw); ok && n == 0 {
			return 1
		}
	}
	return p.count(f, v)
}

// name is a field that is a string; the one before, if it is the same.
func (p *Peeked) name(f peekField, before string) string {
	return p.textOf(&p.given[f], before)
}

func (p *Peeked) textOf(g *given, before string) string {
	if !g.is('"') || len(g.raw) < 2 {
		return ""
	}
	raw := g.raw[1 : len(g.raw)-1]
	if !g.escaped && string(raw) == before {
		return before
	}
	return p.unescaped(raw, g.escaped)
}

// unescaped is the text of a string, which is given without its quotes.
func (p *Peeked) unescaped(raw []byte, escaped bool) string {
	if !escaped && utf8.Valid(raw) {
		return string(raw)
	}
	p.buf = appendUnescaped(p.buf[:0], raw)
	return string(p.buf)
}

// salt is cache_salt, at the top or in the object "coppice": whichever came last; and what of
// the prompt it does not cover.
func (p *Peeked) salt() {
	top, own := &p.given[fieldSalt], &p.given[fieldCoppice]
	p.CacheSalt = p.textOf(top, p.last.salt)
	if !own.is('{') {
		return
	}
	var inner, public given
	s := scanner{b: own.raw, at: 1}
	for i := 0; ; i++ {
		name, ok := s.member(i)
		if !ok {
			break
		}
		switch string(name) {
		case "cache_salt":
			p.take(&s, &inner)
		case "public_tokens":
			p.take(&s, &public)
		default:
			s.skip()
		}
	}
	p.PublicTokens = public.count(0)
	if inner.is('"') && (top.raw == nil || own.order > top.order) {
		p.CacheSalt = p.textOf(&inner, p.last.salt)
	}
}

// prompt reads a text, texts, token ids, or arrays of token ids.
func (p *Peeked) prompt(s *scanner) {
	p.Prompts, p.Text, p.Tokens, p.Truncated = 0, "", nil, false
	switch s.next() {
	case '"':
		raw, escaped := s.quoted()
		p.Prompts, p.Text = 1, p.unescaped(raw, escaped)
		return
	case '[':
		s.at++
	default:
		if raw, _ := s.skip(); len(raw) > 0 && raw[0] != 'n' {
			p.doubt("prompt is neither text nor token ids")
		}
		return
	}
	c := s.next()
	if c == '-' || '0' <= c && c <= '9' {
		p.Prompts = 1
		p.ids(s, "prompt")
		return
	}
	for ; s.more(p.Prompts, ']'); p.Prompts++ {
		c := s.next()
		switch {
		case p.Prompts > 0:
			s.skip()
		case c == '"':
			raw, escaped := s.quoted()
			p.Text = p.unescaped(raw, escaped)
		case c == '[':
			s.at++
			p.ids(s, "prompt[0]")
		default:
			s.skip()
			p.doubt("prompt[0] is neither text nor token ids")
		}
	}
}

// ids reads the array that was entered into Tokens.
func (p *Peeked) ids(s *scanner, path string) {
	most := p.Most
	if most <= 0 {
		most = MaxPromptTokens
	}
	var odd []byte
	p.kept, p.Truncated, odd = s.ids(p.kept[:0], most)
	if p.Tokens = p.kept; p.Tokens == nil {
		p.Tokens = []kv.Token{}
	}
	if odd != nil {
		p.doubt("%s[%d] is %s, which is no token id", path, len(p.Tokens), short(odd))
	}
}
