// Package mocker owns the make-believe worker of a fleet: which blocks of KV it
// holds, which requests run in which pass, and how long a pass takes, as the mocker
// of NVIDIA Dynamo (lib/mocker) has them. It never computes anything, never reads a
// clock and never chooses a worker: time comes in as now, and a pass ends when its
// caller says so.
//
// A request waits, first come first served, until the blocks of its prompt fit. It
// is computed in chunks beside all that decode, outputs one token a pass, and may
// be preempted when blocks run out. A full block is found by others from the pass on
// that computes it, and is announced when that pass ends. Blocks that nobody holds
// stay until their room is needed, the longest unused first, and none before those
// that hang on it.
//
// What differs from upstream, where the same is not said at an option of [Config]:
//
//   - taking blocks is all or nothing; upstream leaves what it took before it failed;
//   - a prompt's block exists when the chunk that computes it has begun, not from the
//     first chunk on, so nobody finds what is not there;
//   - at least the last token of a prompt is computed, as something has to give the
//     first token of the output. It comes with the pass that ends the prompt, which
//     is not a decoding row of that pass;
//   - a sequence gets the block that its next token needs before a pass, and is
//     preempted then: upstream takes a token back that it has computed;
//   - prompts get what the decoding rows leave of MaxBatchedTokens;
//   - without prefix caching blocks have no names and are free at once; upstream
//     gives them random names.
//
// A Worker belongs to one goroutine. Nothing in it depends on the order of a map:
// equal calls give equal reports.
//
//	w, err := mocker.New(mocker.Config{Blocks: 4096, BlockTokens: 16})
//	err = w.Submit(now, &mocker.Request{ID: 1, Tokens: prompt, Locals: locals, Hashes: hashes, OutputTokens: 100})
//	for {
//		at, ok := w.Wake()
//		if !ok {
//			break
//		}
//		report.Reset()
//		err = w.Pass(at, &report)
//	}
package mocker
