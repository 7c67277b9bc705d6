// Package conversation owns the form that a conversation has inside the house, and what the HTTP APIs
// have in common: requests ([Turn], [Params]), answers ([Event], [Answer], [Ending]) and errors
// ([Error]). Each API is a package of its own that maps to this form and back: openai, openai/responses,
// anthropic, ollama. It never reads or writes an API's JSON, and knows no node.
//
//	turn, err := anthropic.Decode(body, options)   // a *conversation.Turn, or a *conversation.Error
//	…                                              // the server renders and runs it
//	dst = writer.Event(dst, conversation.Event{Kind: conversation.Text, Text: "Hello"})
//	dst = writer.End(dst, &conversation.Ending{Reason: conversation.Stopped})
//
// Values are not safe for concurrent use. Requests do not change after they have been decoded.
package conversation
