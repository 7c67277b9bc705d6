package tokenizer

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Tokenizer is a loaded tokenizer.json. It is immutable and safe for concurrent
// use. The zero value is not useful; see [Open], [Parse] and [Train].
type Tokenizer struct {
	vocabulary

	// whole holds the pieces that encode to one token. It is less than the
	// vocabulary: without ignore_merges a token that merging does not reach is
	// never used for a piece that equals it.
	whole map[string]kv.Token
	symbols
	merges mergeTable

	normalizers []normalizer
	cutters     []cutter
	only        bool     // there is one cutter, and it is
	split       splitter // a splitter written by hand
	words       string   // unless "", pieces are cut before each run of this: see safeWords

	// Added tokens are looked for in two passes, as the format demands: first
	// in the text as it came, then in what normalization made of the rest.
	raw, normalized *matcher
	added           map[string]kv.Token // by their content in the file

	// What Decode does at the beginning of a text; see readDecoder.
	strip     int // how many stripByte are dropped there at most
	stripByte byte

	prefix, suffix []kv.Token // what EncodePrompt puts around the text
	bos            kv.Token
	hasBOS         bool
	eos            []kv.Token
}

// vocabulary has the text and the kind of each token id.
type vocabulary struct {
	text    []string // the bytes of the token
	first   []string // nil if the same as text: its bytes at the beginning of a text
	special []bool   // left out of text meant for people
	known   []bool   // false for holes, ids that no token has
}

// Encode appends the tokens of text to dst. Added tokens ("<|eot_id|>") in text become
// that token, special or not; remove them from untrusted text first. No template is
// added around the text. It takes O(n log n) time at worst, O(n) on natural text. It
// allocates only for dst, for pieces over 64 bytes (an [Encoder] does not) and, if the
// file requires it, for text that normalization changes.
//
// If the file has a regular expression without its own splitter, the matcher stops on
// text that takes too many steps, and takes the rest as one piece. To detect that, as
// for untrusted texts, use [Encoder.EncodeWith].
func (t *Tokenizer) Encode(dst []kv.Token, text string) []kv.Token {
	return t.encode(dst, text, nil)
}

// EncodePrompt is Encode with what the model expects around a prompt: the
// special tokens of the file's TemplateProcessing post-processor or, where it
// has none, the BOS if tokenizer_config.json sets add_bos_token. A BOS that
// stands in text already is not taken into account, as in Hugging Face's
// library: use Encode for the output of a chat template.
func (t *Tokenizer) EncodePrompt(dst []kv.Token, text string) []kv.Token {
	return t.encodePrompt(dst, text, nil)
}

// VocabSize is the highest id plus one, added tokens included; ids below it may
// be holes, see [Tokenizer.Known]. A model's embedding may have more rows.
func (t *Tokenizer) VocabSize() int { return len(t.text) }

// Known reports whether the vocabulary has a token with that id.
func (t *Tokenizer) Known(token kv.Token) bool {
	return int64(token) < int64(len(t.known)) && t.known[token]
}

// BOS is the token that starts a sequence, false if the model has none. It is
// bos_token of tokenizer_config.json, else the first token of the
// post-processor's template.
func (t *Tokenizer) BOS() (kv.Token, bool) { return t.bos, t.hasBOS }

// EOS are the tokens that end a generation. It is eos_token of
// tokenizer_config.json; without one, those special tokens whose names are
// known to end a text or a turn in the supported families. It may be empty. A
// model's generation_config.json may name more. The slice is the caller's.
func (t *Tokenizer) EOS() []kv.Token { return slices.Clone(t.eos) }

// Special reports whether token is a special token, which Decode can leave out
// and a [Detokenizer] always leaves out. It is false for unknown tokens.
func (t *Tokenizer) Special(token kv.Token) bool {
	return int(token) < len(t.special) && t.special[token]
}

// Text returns the bytes that token adds in the middle of a text; they may begin or end
// inside a rune. It is empty for special tokens, holes and unknown tokens.
func (t *Tokenizer) Text(token kv.Token) string {
	if int64(token) >= int64(len(t.text)) || t.special[token] {
		return ""
	}
	return t.text[token]
}

// AddedToken finds the added token (special or not) with that content.
func (t *Tokenizer) AddedToken(content string) (kv.Token, bool) {
	id, ok := t.added[content]
	return id, ok
}
