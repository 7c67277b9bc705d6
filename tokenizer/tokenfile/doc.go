// Package tokenfile owns the reading of a model's tokenizer files, with the normalization forms of Unicode that they may name.
// It never encodes: package tokenizer does. It is apart from it so that a program that gives tokens, not texts, links neither
// Unicode's tables nor a reader of files. Its functions may be called from any goroutine.
//
//	t, err := tokenfile.Open("model/tokenizer.json")
package tokenfile
