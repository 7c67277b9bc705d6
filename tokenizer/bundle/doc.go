// Package bundle owns the files of a model directory that make text into tokens, tokenizer
// and chat templates, as one piece that a worker can hand to a router: so that both make
// the same tokens, and one of them can tell when they do not. It never parses what is in
// the files.
//
//	b, err := bundle.Read("models/llama") // the worker
//	w.Write(b.Data)
//
//	b, err := bundle.Of(body) // the router
//	err = b.Unpack(dir)
//	tok, err := tokenizer.Open(filepath.Join(dir, "tokenizer.json"))
package bundle
