// Package openai owns the wire of OpenAI's HTTP interface: bodies of requests to
// [coppice.Request], pieces to answers and server-sent events, errors to error
// objects, and the document that describes all of it. It never serves HTTP, never
// starts a goroutine, holds no node and reads no clock: ids, times and random seeds
// are given to it.
//
// Requests are read strictly, for a field that is silently passed over gives an
// answer to another question: what is unknown, has the wrong type or is out of range
// is an [Error] that names the field; what the interface has and this server lacks is
// refused by name; null is the same as nothing; of two fields with one name the last
// counts. Fields of vLLM's and SGLang's extensions are taken under their names
// there, and with coppice's own under the key "coppice".
//
//	c, err := openai.DecodeCompletion(body, openai.Options{})
//	if err != nil {
//		return err // an *openai.Error
//	}
//	stream := c.NewStream(openai.Head{ID: id, Created: now, Model: name}, node.Tokenizer())
//	for piece, err := range node.Generate(ctx, c.Request(0)) {
//		if err != nil {
//			buf = stream.Error(buf[:0], err)
//			break
//		}
//		buf = stream.Piece(buf[:0], 0, &piece)
//		w.Write(buf)
//	}
//	w.Write(stream.Done(buf[:0]))
//
// A schema that an answer has to match is kept to as it is, but for one: the list that is an
// object's only property is written even where the schema lets it be left out. Clients that
// wrap a list so take {} for a broken answer.
//
// Calls of tools are taken out of what a model writes where it writes them as Hermes and
// Qwen models do, in <tool_call> tags; other forms stay text. Reasoning is taken out where
// it stands in <think> tags at the beginning.
//
// Values are not safe for concurrent use. Decoded ones are not changed after they
// were made.
//
// Source of the shapes: OpenAI's API reference (platform.openai.com/docs/api-reference),
// and vllm/entrypoints/openai/protocol.py of vLLM for the extensions.
package openai
