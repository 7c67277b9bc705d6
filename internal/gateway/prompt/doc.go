// Package prompt owns what a request's body says to who passes it on: the tokens of
// its prompt, as the worker will compute them, and in which namespace they are. It
// never judges a request, never serves HTTP, starts no goroutine and knows no workers.
//
// What can't be told exactly is no error: such a request is routed by a guess, which
// [Prompt.Exact] says. Only a body that no worker could read is one.
//
// Texts are tokenized in segments that begin with special tokens, and the tokens of
// segments are remembered, so that of a conversation's next turn only what is new is
// tokenized.
//
// A [Reader] is safe for concurrent use, a [Prompt] belongs to one goroutine at a time.
//
//	r, err := prompt.New(prompt.Config{Tokenizer: tok, Template: tmpl, Namespace: openai.Namespace})
//	if err != nil {
//		return err
//	}
//	var p prompt.Prompt // kept, with its memory, for the next request
//	if err := r.Read(prompt.Chat, tenant, body, &p); err != nil {
//		return err // an *openai.Error, for the client
//	}
//	hashes.Reset(p.Tokens, p.Namespace)
package prompt
