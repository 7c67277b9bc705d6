// Package tokenizer owns the way between text and tokens: byte-level BPE as
// Hugging Face writes it into tokenizer.json, its inverse, and the incremental
// decoding of a stream. It never renders chat templates, never limits lengths
// and never keeps state between calls.
//
// A [Tokenizer] is immutable once loaded: any number of goroutines may use one.
// A [Detokenizer] belongs to one stream and one goroutine at a time.
//
//	t, err := tokenizer.Open("model/tokenizer.json")
//	if err != nil {
//		return err
//	}
//	prompt := t.EncodePrompt(nil, "Once upon a time")
//	d := t.NewDetokenizer()
//	var out []byte
//	for token := range generated {
//		out = d.Next(out[:0], token) // whole runes only
//		w.Write(out)
//	}
//	w.Write(d.Flush(out[:0]))
//
// Supported is what Llama 3, Qwen 2 to 3 and GPT-2 ship: model BPE over the
// byte alphabet, the three splitting patterns of those families, added tokens,
// a TemplateProcessing post-processor. Whatever else a file asks for is refused
// by name with [ErrUnsupported], for ignoring it would yield other tokens than
// the model was trained on. Two things are ignored on purpose: truncation and
// padding, which callers of Hugging Face's library set for each call anyway.
//
// Text need not be valid UTF-8. A byte that is no part of a rune counts as one
// symbol, neither letter nor digit nor space, and is encoded as itself, so that
// Decode(Encode(x)) is x for any bytes, unless the file asks for normalization
// or for added tokens that swallow spaces (lstrip, rstrip).
//
// [Train] makes small tokenizers for tests and demonstrations in the same
// format.
package tokenizer
