// Package tokenizer owns the conversion between text and tokens: BPE as Hugging Face
// writes it into tokenizer.json, byte-level or SentencePiece-style, its inverse, and
// the incremental decoding of a stream. It never renders chat templates (package
// tokenizer/chat does), never limits lengths and never keeps state between calls,
// except for an [Encoder], which caches pieces.
//
// A [Tokenizer] is immutable once loaded: any number of goroutines may use it.
// An [Encoder] may be used by one goroutine at a time, a [Detokenizer] for one stream
// by one goroutine at a time.
//
//	t, err := tokenfile.Open("model/tokenizer.json")
//	if err != nil {
//		return err
//	}
//	prompt := t.EncodePrompt(nil, "Once upon a time")
//	d := t.NewContinuation()
//	var out []byte
//	for token := range generated {
//		out = d.Next(out[:0], token) // whole runes only
//		w.Write(out)
//	}
//	w.Write(d.Flush(out[:0]))
//
// Supported are the files of Llama 2 to 4, Qwen 2 to 3, Mistral (v0.3's and tekken), DeepSeek
// V3 to V4, Gemma 3, SmolLM2, gpt-oss and GPT-2 (docs/tokenizers.md has a table of the
// files that were compared):
//
//	model            BPE; byte_fallback, fuse_unk, ignore_merges
//	normalizer       NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip
//	pre_tokenizer    Split, Digits, Metaspace, ByteLevel as the last step
//	post_processor   TemplateProcessing for one text, ByteLevel
//	decoder          ByteLevel, Metaspace, or Replace, ByteFallback, Fuse, Strip
//	added tokens     single_word, lstrip, rstrip, normalized, special
//
// and Sequences of these. A byte-level vocabulary may lack bytes, which become the
// unknown token or are dropped, and some ids may have no token. Splitting expressions run as
// automata or, if they look around further than at the rune after a match, in a backtracking
// matcher. Both count their steps and stop after too many: see [Encoder.EncodeWith]. Any other
// feature of a file is refused by name with [ErrUnsupported], since ignoring it would
// yield other tokens than those that the model was trained on. Two features are ignored
// on purpose: truncation and padding, which callers of Hugging Face's library set for
// each call anyway.
//
// A tokenizer.json is trusted as much as its model. No file makes these functions
// panic; a malicious one may take much memory.
//
// Text need not be valid UTF-8. A byte that is not part of a rune counts as one
// symbol, neither letter nor digit nor space, and is encoded as itself, so that
// Decode(Encode(x)) is x for any bytes, with byte-level files that have all bytes,
// unless the file has a normalizer or added tokens that absorb spaces (lstrip, rstrip).
//
// Package tokenizer/trainer makes small tokenizers for tests and demonstrations in the same
// format.
package tokenizer
