package answer

import (
	"strconv"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// TokensAnswer writes the answer of /tokenize in parts, because it may be ten times as long as
// the request.
type TokensAnswer struct {
	tokens []kv.Token
	names  naming
	named  bool // write token_strs too
	at     int  // elements of the current list already written
	part   int  // 0: nothing written; 1: writing tokens; 2: writing token_strs
	length int  // max_model_len
}

// NewTokensAnswer returns an answer for tokens. maxModelLen is the model's number of positions. If
// tok is not nil, the answer also has token_strs, the tokens' texts.
func NewTokensAnswer(tokens []kv.Token, maxModelLen int, tok *tokenizer.Tokenizer) *TokensAnswer {
	return &TokensAnswer{tokens: tokens, names: naming{tok: tok}, named: tok != nil, length: maxModelLen}
}

// partTokens is the number of tokens per part.
const partTokens = 2048

// Append appends the next part to dst. more reports whether another part follows.
func (a *TokensAnswer) Append(dst []byte) (_ []byte, more bool) {
	if a.part == 0 {
		dst = append(dst, `{"count":`...)
		dst = jsontext.AppendInt(dst, len(a.tokens))
		dst = append(dst, `,"max_model_len":`...)
		dst = jsontext.AppendInt(dst, a.length)
		dst = append(dst, `,"tokens":[`...)
		a.part = 1
	}
	for n := min(a.at+partTokens, len(a.tokens)); a.at < n; a.at++ {
		if a.at > 0 {
			dst = append(dst, ',')
		}
		if a.part == 1 {
			dst = strconv.AppendUint(dst, uint64(a.tokens[a.at]), 10)
		} else {
			dst = a.names.append(dst, a.tokens[a.at])
		}
	}
	switch {
	case a.at < len(a.tokens):
		return dst, true
	case a.part == 2:
		return append(dst, "]}"...), false
	case !a.named:
		return append(dst, `],"token_strs":null}`...), false
	}
	a.part, a.at = 2, 0
	return append(dst, `],"token_strs":[`...), true
}

// TextAnswer writes the answer of /detokenize in parts, because a token may decode to a hundred
// bytes.
type TextAnswer struct {
	tokens []kv.Token
	from   *tokenizer.Decoding
	text   []byte // decoded, not yet written: at most an incomplete rune between parts
	begun  bool
}

// NewTextAnswer returns an answer with the text of tokens.
func NewTextAnswer(tok *tokenizer.Tokenizer, tokens []kv.Token) *TextAnswer {
	return &TextAnswer{tokens: tokens, from: tok.NewDecoding()}
}

// Append appends the next part to dst. more reports whether another part follows.
func (a *TextAnswer) Append(dst []byte) (_ []byte, more bool) {
	if !a.begun {
		dst = append(dst, `{"prompt":"`...)
		a.begun = true
	}
	n := min(partTokens/8, len(a.tokens))
	a.text = a.from.Append(a.text, a.tokens[:n])
	a.tokens = a.tokens[n:]
	whole := len(a.text)
	if len(a.tokens) > 0 {
		whole -= unfinished(a.text)
	}
	dst = jsontext.AppendText(dst, string(a.text[:whole]))
	a.text = a.text[:copy(a.text, a.text[whole:])]
	if len(a.tokens) > 0 {
		return dst, true
	}
	return append(dst, `"}`...), false
}

// unfinished returns the number of bytes of an incomplete rune at the end of text.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

func appendIDs(dst []byte, tokens []kv.Token) []byte {
	return jsontext.AppendList(dst, tokens, jsontext.AppendInt[kv.Token])
}
