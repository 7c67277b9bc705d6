// Package anthropic owns the form of Anthropic's Messages API: requests to /v1/messages and
// /v1/messages/count_tokens, their answers, streamed and whole, errors, lists of models, and its part of the
// OpenAPI document. It never serves HTTP and knows no node: package server runs what [Decode] returns, and
// writes the answer with a [Wire].
//
// Requests are read strictly, as in package openai: a field that is unknown, of the wrong type or out of range
// is a *conversation.Error that names it. What the clients of this API send by default is accepted. Fields
// without influence on the output are ignored, and conversation.Params.Ignored names them.
//
//	ask, err := anthropic.Decode(body, anthropic.Options{})
//	if err != nil {
//		return err // a *conversation.Error
//	}
//	fmt.Println(ask.Model, ask.MaxTokens, ask.Messages[0].Content)
//
// A proxy reads the same fields leniently, by [Peek].
//
// Values are not safe for concurrent use, except that any number of goroutines may decode with the same Options.
//
// Source of the shapes: Anthropic's API reference (docs.claude.com/en/api/messages) and the types of its
// clients, the package anthropic for Python and @anthropic-ai/sdk for JavaScript.
package anthropic
