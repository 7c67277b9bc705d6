package tokenizer

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Tokenizer is a loaded tokenizer.json. It is immutable and safe for concurrent use. The zero
// value is not useful; see [Parse], [Train], and Open of package tokenfile.
type Tokenizer struct {
	vocabulary

	// whole maps the pieces that encode to one token. It is smaller than the vocabulary: without
	// ignore_merges, a token that merging does not produce is not used for a piece that equals
	// it.
	whole map[string]kv.Token
	symbols
	merges mergeTable

	normalizers []normalizer
	cutters     []cutter
	words       string // unless "", pieces are split before each run of this: see safeWords

	// Added tokens are matched in two passes, as the format requires: first in the raw text,
	// then in the normalized text of the segments between them.
	raw, normalized *matcher
	added           map[string]kv.Token // by their content in the file

	// How Decode treats the beginning of a text; see readDecoder.
	strip     int // maximum number of stripByte to drop there
	stripByte byte

	tokenBytes     int        // see TokenBytes
	prefix, suffix []kv.Token // the tokens that EncodePrompt adds around the text
	bos            kv.Token
	hasBOS         bool
	eos            []kv.Token
}

// vocabulary has the text and properties of each id.
type vocabulary struct {
	text    []string // the bytes of the token
	first   []string // the bytes at the beginning of a text; nil if they are those of text
	special []bool   // omitted by Decode with skipSpecial
	known   []bool   // false for an id without a token
}

// Encode appends the tokens of text to dst. Added tokens ("<|eot_id|>") that occur in text
// become that token, special or not; for untrusted text use [Encoder.EncodeWith] with
// Options.Plain. Nothing is added around the text. It takes O(n log n) time at worst, O(n) on
// natural text. It only allocates to grow dst, for pieces over 64 bytes (an [Encoder] does
// not), and for text that the file's normalizers change.
//
// If a regular expression of the file takes too many steps on text, its matcher stops, and the rest
// becomes one piece; EncodeWith returns an error instead.
func (t *Tokenizer) Encode(dst []kv.Token, text string) []kv.Token {
	return t.encode(dst, text, &scratch{})
}

// EncodePrompt is Encode with the tokens that the model expects around a prompt: the special
// tokens of the file's TemplateProcessing post-processor or, if it has none, the BOS if
// tokenizer_config.json sets add_bos_token. It adds BOS even if text begins with it, like
// Hugging Face's library: use Encode for the output of a chat template.
func (t *Tokenizer) EncodePrompt(dst []kv.Token, text string) []kv.Token {
	return t.encodePrompt(dst, text, &scratch{})
}

// VocabSize returns the highest id plus one, added tokens included. Some ids below it may have no
// token: see [Tokenizer.Known]. A model's embedding may have more rows.
func (t *Tokenizer) VocabSize() int { return len(t.text) }

// Known reports whether the vocabulary has a token with that id.
func (t *Tokenizer) Known(token kv.Token) bool {
	return int64(token) < int64(len(t.known)) && t.known[token]
}

// BOS returns the token that starts a sequence, false if the model has none. It is bos_token of
// tokenizer_config.json, or else the first token of the post-processor's template.
func (t *Tokenizer) BOS() (kv.Token, bool) { return t.bos, t.hasBOS }

// EOS returns the tokens that end a generation: eos_token of tokenizer_config.json; without
// one, the special tokens whose names are known to end a text or a turn in the supported
// families. It may be empty. A model's generation_config.json may name more. The slice is the
// caller's.
func (t *Tokenizer) EOS() []kv.Token { return slices.Clone(t.eos) }

// Special reports whether token is a special token, which Decode can omit and a [Detokenizer]
// always omits. It is false for ids without a token.
func (t *Tokenizer) Special(token kv.Token) bool {
	return int(token) < len(t.special) && t.special[token]
}

// Text returns the text that token has when it is not the first token of a text: bytes that may
// begin or end inside a rune. It is empty for special tokens and for ids without a token.
func (t *Tokenizer) Text(token kv.Token) string {
	if int64(token) >= int64(len(t.text)) || t.special[token] {
		return ""
	}
	return t.text[token]
}

// AddedToken returns the id of the added token, special or not, with that content; false if there
// is none.
func (t *Tokenizer) AddedToken(content string) (kv.Token, bool) {
	id, ok := t.added[content]
	return id, ok
}
