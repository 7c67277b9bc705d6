// Package responses owns the form of OpenAI's Responses API, /v1/responses: it decodes requests into turns of a conversation,
// encodes their answers, streamed or whole, and defines the stored form of a response. It never serves HTTP, knows no node and
// stores nothing itself.
//
//	ask, err := responses.Decode(body, responses.Options{})
//	if err != nil {
//		return err // a *conversation.Error
//	}
//	wire := responses.NewWire(ask, 0, nil)
//	dst = wire.Whole(dst, answer) // the answer to ask.Turn
//
// A field that is unknown, has the wrong type or is out of range is an error that names it. What the server can't do, such as
// tools that it would run itself, is refused by name. A proxy reads what it routes by with [Peek], leniently.
//
// Values are not safe for concurrent use. Decoded requests do not change.
//
// Source of the shapes: the types of openai-python 3.3.0, openai/types/responses.
package responses
