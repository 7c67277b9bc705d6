// Package prompt owns the reading of a request's body by a router: the tokens of its prompt, as
// the worker will compute them, and their namespace. It never judges a request, never serves
// HTTP, starts no goroutine and knows no workers.
//
// If the tokens can't be determined exactly, that is not an error: the request is routed by a
// guess, and [Prompt.Exact] is false. Only a body that no worker could read is an error.
//
// The tokens of texts are cached, for each namespace apart: see package textcache. So the next turn
// of a conversation costs only the tokenization of its new part.
//
// A [Reader] is safe for concurrent use, a [Prompt] belongs to one goroutine at a time.
//
//	r, err := prompt.New(prompt.Config{Tokenizer: tok, Template: tmpl, Namespace: openai.Namespace})
//	if err != nil {
//		return err
//	}
//	var p prompt.Prompt // kept, with its memory, for the next request
//	if err := r.Read(prompt.Chat, tenant, body, prompt.As{}, &p); err != nil {
//		return err // an *openai.Error, for the client
//	}
//	hashes.Reset(p.Tokens, p.Namespace)
package prompt
