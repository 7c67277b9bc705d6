package prompt

import (
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/textcache"
)

// encode sets p.tokens to the tokens of text, and p.Blocks, with an idle encoder, or a new one, which it then
// returns unless enough are idle. Texts with the same salt share what they have in common.
func (r *Reader) encode(p *Prompt, text string, o tokenizer.Options) (err error) {
	var encoder *tokenizer.Encoder
	select {
	case encoder = <-r.encoders:
	default:
		encoder = r.cfg.Tokenizer.NewEncoder()
	}
	var blocks *textcache.Blocks
	if p.Blocks.BlockTokens > 0 {
		blocks = &p.Blocks
	}
	p.tokens, err = r.texts.EncodeBlocks(p.tokens[:0], encoder, p.Namespace.Salt, text, o, blocks)
	select {
	case r.encoders <- encoder:
	default:
	}
	return err
}
