// Package decisions owns the recorded form of a router's decisions: what the router knew, what it chose, and what it learnt of the
// choice afterwards. It neither chooses nor judges, and reads and writes no file: an Encoder appends lines to the caller's buffer,
// and Read takes them from a reader.
//
// A recording is JSON, one object a line: a head, then workers, each before the first decision that names it, and decisions in the
// order in which they ended. A recording has no text, no tokens, and no name but those of workers. Prompts are chains of block
// hashes, encrypted under a key that is in no recording: equal prefixes have equal hashes, but a guess at a prompt can't be compared
// with them. A decision has only the hashes that no earlier line has.
//
//	e := decisions.NewEncoder(key)
//	buf = e.AppendHead(buf, decisions.Head{BlockTokens: 16, Policy: router.CostLatency, Weights: router.DefaultWeights()})
//	buf = e.AppendDecision(buf, &d, hashes, nil)
//
//	rec, err := decisions.Read(file)
package decisions
