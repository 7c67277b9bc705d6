package prompt

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/openai"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// shortened reports whether the worker may keep only a part of the prompt.
func shortened(q *openai.Peeked) bool { return q.Truncate > 0 }

// readWhole returns the most tokens to read of a prompt that the worker shortens: all, because the worker may keep only the end,
// and it does not refuse a prompt for its length before that.
func (r *Reader) readWhole(p *Prompt) {
	if shortened(&p.peeked) {
		p.most = r.cfg.MaxTokens
		p.PublicTokens = 0 // counted from the beginning, which may be gone
	}
}

// shortenTokens shortens p.Tokens, given as token ids or guessed, as vLLM does (renderers/params.py, TokenizeParams): the last
// tokens stay, or the first ones with truncation_side "right".
func (r *Reader) shortenTokens(p *Prompt) {
	q := &p.peeked
	switch {
	case !shortened(q) || len(p.Tokens) <= q.Truncate && !p.Truncated:
	case q.KeepFirst:
		p.Tokens, p.Truncated = p.Tokens[:min(len(p.Tokens), q.Truncate)], false
	case p.Truncated:
		p.guess(fmt.Errorf("prompt: truncate_prompt_tokens keeps the end of a prompt of over %d tokens, which is not read", r.cfg.MaxTokens))
	default:
		p.Tokens = p.Tokens[len(p.Tokens)-q.Truncate:]
	}
}

// shortText reads a text that the worker shortens. With whole, the tokens that the tokenizer adds around a prompt stay, and text
// only fills what room they leave, as in the truncation of Hugging Face's tokenizers.
func (r *Reader) shortText(p *Prompt, text chat.Rendered, whole bool) {
	var before, after []kv.Token
	if whole {
		before, after = r.cfg.Tokenizer.Around()
	}
	p.Blocks.BlockTokens = 0 // hashes of the whole text's blocks would be others
	err := r.encode(p, text.Text, tokenizer.Options{MaxTokens: p.most, Plain: text.Plain})
	p.Truncated = errors.Is(err, tokenizer.ErrTooLong)
	if err != nil && !p.Truncated {
		p.guess(err)
	}
	q := &p.peeked
	room := q.Truncate - len(before) - len(after)
	if p.clip(); room <= 0 {
		p.guess(fmt.Errorf("prompt: truncate_prompt_tokens is %d, which leaves no room between the tokens around a prompt", q.Truncate))
		return
	}
	q.Truncate = room
	if r.shortenTokens(p); len(before)+len(after) > 0 {
		p.tokens = slices.Concat(before, p.Tokens, after)
		p.Tokens = p.tokens
	}
}
