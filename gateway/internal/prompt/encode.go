package prompt

import (
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// encode appends the tokens of text to dst with an idle encoder, or a new one, which it then returns
// unless enough are idle. Texts with the same salt share what they have in common.
func (r *Reader) encode(dst []kv.Token, salt, text string, o tokenizer.Options) ([]kv.Token, error) {
	var encoder *tokenizer.Encoder
	select {
	case encoder = <-r.encoders:
	default:
		encoder = r.cfg.Tokenizer.NewEncoder()
	}
	dst, err := r.texts.Encode(dst, encoder, salt, text, o)
	select {
	case r.encoders <- encoder:
	default:
	}
	return dst, err
}
