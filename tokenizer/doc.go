// Package tokenizer owns the way between text and tokens: BPE as Hugging Face
// writes it into tokenizer.json, over bytes or in SentencePiece's way, its
// inverse, and the incremental decoding of a stream. It never renders chat
// templates (package tokenizer/chat does), never limits lengths and never keeps
// state between calls, but for an [Encoder], which remembers pieces.
//
// A [Tokenizer] is immutable once loaded: any number of goroutines may use one.
// An [Encoder] belongs to one goroutine at a time, a [Detokenizer] to one stream
// and one goroutine at a time.
//
//	t, err := tokenizer.Open("model/tokenizer.json")
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
// It supports the files of Llama 2 to 4, Qwen 2 to 3, Mistral (v0.3's and tekken), DeepSeek
// V3 to V4, Gemma 3, SmolLM2, gpt-oss and GPT-2 (docs/tokenizers.md compares files with
// Hugging Face's library):
//
//	model            BPE; byte_fallback, fuse_unk, ignore_merges
//	normalizer       NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip
//	pre_tokenizer    Split, Digits, Metaspace, ByteLevel as the last step
//	post_processor   TemplateProcessing for one text, ByteLevel
//	decoder          ByteLevel, Metaspace, or Replace, ByteFallback, Fuse, Strip
//	added tokens     single_word, lstrip, rstrip, normalized, special
//
// and Sequences of these. A byte-level vocabulary may lack bytes, which become the
// unknown token or are left out, and ids may have holes. The splitting expressions of
// those families are written out by hand; others run in a backtracking matcher that
// counts its steps and gives up after too many: see [Encoder.EncodeWith]. Whatever else a file
// asks for is refused by name with [ErrUnsupported], for ignoring it would yield
// other tokens than the model was trained on. Two things are ignored on purpose:
// truncation and padding, which callers of Hugging Face's library set for each
// call anyway.
//
// A tokenizer.json is trusted as the model is. No file makes these functions
// panic; one made for harm may take much memory.
//
// Text need not be valid UTF-8. A byte that is no part of a rune counts as one
// symbol, neither letter nor digit nor space, and is encoded as itself, so that
// Decode(Encode(x)) is x for any bytes with byte-level files that have all of them,
// unless the file asks for normalization or for added tokens that swallow spaces (lstrip, rstrip).
//
// [Train] makes small tokenizers for tests and demonstrations in the same
// format.
package tokenizer
