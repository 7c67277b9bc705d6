// Package answer owns the encoding of a node's output for clients: whole answers and server-sent
// events of completions and chats, and the answers of /tokenize and /detokenize. It never serves
// HTTP, never starts a goroutine, holds no node and reads no clock: ids, times and the tokenizer
// are arguments.
//
//	a := answer.Completion(request, answer.Head{ID: id, Created: now, Model: name}, node.Tokenizer())
//	stream := a.Stream()
//	for piece, err := range node.Generate(ctx, ask) {
//		if err != nil {
//			break
//		}
//		buf = stream.Piece(buf[:0], 0, &piece)
//		w.Write(buf)
//	}
//	w.Write(stream.Done(buf[:0]))
//
// An answer follows the request's JSON schema as written, with one exception: a list that is the
// only property of an object is always written, even where the schema makes it optional. Clients
// that wrap a list in an object take {} for a broken answer.
//
// Package grammar/toolcall separates tool calls and reasoning from the text.
//
// At temperature 0 an output ends at a call that equals the call before it; Stream.Repeated and Response.Repeated
// tell the caller to stop the request.
//
// Values are not safe for concurrent use.
package answer
