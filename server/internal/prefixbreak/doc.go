// Package prefixbreak owns what the server remembers of conversations to notice a client that breaks its own
// prefix: one whose next turn changes, reorders or drops what the turn before began with, so that the cache can't
// be used. It never refuses or changes a request, keeps no text of answers, and tells nobody but its caller.
//
//	turn := prefixbreak.NewTurn(messages, tools)
//	if b := watch.Check(key, turn); b != nil { … }     // before the answer
//	watch.Keep(key, turn, tokens)                       // after it, with the tokens of the prompt
//
// A turn follows another one if it has the other's last message, and after it an answer of the assistant. Up to
// there both should be equal. Edits of the last message, forks, and answers that are made again are no breaks:
// nothing of the old turn after the change comes back.
//
// A [Watch] is safe for concurrent use. It is bounded by sessions and by bytes.
package prefixbreak
