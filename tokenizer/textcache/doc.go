// Package textcache owns the tokens of the texts that were encoded before, so that encoding the
// next turn of a conversation costs what its new text costs. It never changes a token: the result is
// that of encoding the whole text, and so is the error. It knows no requests and starts no goroutine.
//
// A text is cut into parts at places where it splits whatever else is in it: see [tokenizer.Cuts].
// The end of a part depends only on the text up to there, so texts with a common beginning have the
// same parts, up to the one in which they differ. Texts that differ at the beginning have the same
// parts again after the next added token. The tokens of parts are kept by their bytes.
//
// A part is found only for the owner for which it was encoded, so that no tenant learns from the time
// that an answer takes what texts another one has sent. All owners share the memory: the part that was
// not used for the longest time goes first.
//
// A lookup compares the bytes of the parts. Without them a part would take half the memory, and a
// hash with a secret key of 128 bits would do, but all of the promise above would hang on it.
//
// A [Cache] is safe for concurrent use.
//
//	cache := textcache.New(tok, 64<<20)
//	tokens, err := cache.Encode(nil, tok.NewEncoder(), tenant, text, tokenizer.Options{Prompt: true})
package textcache
