package answer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/jsontext"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// WriteTokens writes the answer of /tokenize for tokens, piece by piece: it may be ten times as long
// as the request. maxModelLen is the model's number of positions. If tok is not nil, the answer also
// has token_strs, the tokens' texts. Its error is the writer's.
func WriteTokens(w *bufio.Writer, tokens []kv.Token, maxModelLen int, tok *tokenizer.Tokenizer) error {
	fmt.Fprintf(w, `{"count":%d,"max_model_len":%d,"tokens":`, len(tokens), maxModelLen)
	writeList(w, tokens, jsontext.AppendInt[kv.Token])
	w.WriteString(`,"token_strs":`)
	if tok == nil {
		w.WriteString("null")
	} else {
		names := naming{tok: tok}
		writeList(w, tokens, names.append)
	}
	w.WriteByte('}')
	return w.Flush()
}

// writeList writes tokens as an array; item appends one element. It stops at the writer's first error.
func writeList(w *bufio.Writer, tokens []kv.Token, item func(dst []byte, t kv.Token) []byte) {
	w.WriteByte('[')
	for i, t := range tokens {
		dst := w.AvailableBuffer()
		if i > 0 {
			dst = append(dst, ',')
		}
		if _, err := w.Write(item(dst, t)); err != nil {
			return
		}
	}
	w.WriteByte(']')
}

// textTokens is the number of tokens that WriteText decodes at a time.
const textTokens = 256

// WriteText writes the answer of /detokenize, the text of tokens, piece by piece: a token may decode
// to a hundred bytes. Its error is the writer's.
func WriteText(w *bufio.Writer, tok *tokenizer.Tokenizer, tokens []kv.Token) error {
	w.WriteString(`{"prompt":"`)
	from := tok.NewDecoding()
	var text []byte // decoded, not yet written: at most an incomplete rune between pieces
	for piece := range slices.Chunk(tokens, textTokens) {
		text = from.Append(text, piece)
		whole := len(text) - unfinished(text)
		if _, err := w.Write(jsontext.AppendText(w.AvailableBuffer(), string(text[:whole]))); err != nil {
			return err
		}
		text = text[:copy(text, text[whole:])]
	}
	w.Write(jsontext.AppendText(w.AvailableBuffer(), string(text)))
	w.WriteString(`"}`)
	return w.Flush()
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

// TokenizerInfo makes the answer of /tokenizer_info in vLLM's form: the contents of
// tokenizer_config.json, with special tokens replaced by their texts, plus tokenizer_class and
// chat_template. config may be nil; a nonempty template replaces the one in config.
//
// Source: vllm/entrypoints/openai/serving_tokenization.py of vLLM, TokenizerInfo.
func TokenizerInfo(config []byte, template string) ([]byte, error) {
	info := map[string]any{}
	if config != nil {
		d := json.NewDecoder(bytes.NewReader(config))
		d.UseNumber() // model_max_length may be 1e30
		if err := d.Decode(&info); err != nil {
			return nil, fmt.Errorf("openai: tokenizer_config.json: %w", err)
		}
	}
	for name, v := range info {
		info[name] = plainTokens(v)
	}
	if _, ok := info["tokenizer_class"].(string); !ok {
		info["tokenizer_class"] = "PreTrainedTokenizerFast"
	}
	if template != "" {
		info["chat_template"] = template
	}
	return json.Marshal(info)
}

// plainTokens replaces each token object, {"content": "<s>", "lstrip": false, …}, anywhere in v
// by its text.
func plainTokens(v any) any {
	switch v := v.(type) {
	case map[string]any:
		text, ok := v["content"].(string)
		if _, flagged := v["lstrip"].(bool); ok && flagged {
			return text
		}
		for name, e := range v {
			v[name] = plainTokens(e)
		}
	case []any:
		for i, e := range v {
			v[i] = plainTokens(e)
		}
	}
	return v
}
