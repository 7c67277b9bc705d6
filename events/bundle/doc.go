// Package bundle owns the files of a model directory that determine its tokens, tokenizer and
// chat templates, as one archive that a worker can hand to a router: so both produce the same
// tokens, and either can detect a difference by the digest. It never parses the contents of
// the files.
//
//	b, err := bundle.Read("models/llama") // the worker
//	w.Write(b.Data)
//
//	b, err := bundle.Of(body) // the router
//	err = b.Unpack(dir)
//	tok, err := tokenfile.Open(filepath.Join(dir, "tokenizer.json"))
package bundle
