// Package answer owns what clients are sent for the output of a node: whole answers and
// server-sent events of completions and chats, and the answers of /tokenize and
// /detokenize. It never serves HTTP, never starts a goroutine, holds no node and reads no
// clock: ids, times and the tokenizer are given to it.
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
// A schema that an answer has to match is kept to as it is, but for one: the list that is an
// object's only property is written even where the schema lets it be left out. Clients that
// wrap a list so take {} for a broken answer.
//
// Calls of tools are taken out of what a model writes where it writes them as Hermes and
// Qwen models do, in <tool_call> tags; other forms stay text. Reasoning is taken out where
// it stands in <think> tags at the beginning.
//
// Values are not safe for concurrent use.
package answer
