// Package mocker owns the simulated worker of a fleet: the blocks of KV that it holds,
// the requests that run in each pass, and the time that a pass takes, all as in the
// mocker of NVIDIA Dynamo (lib/mocker). It never computes a token, never reads a clock
// and never chooses a worker: time comes in as now, and its caller ends each pass.
//
// A request waits, first come first served, until the blocks of its prompt fit. Its
// prompt is computed in chunks, together with all decoding requests. Then it outputs one
// token in each pass, and may be preempted when blocks run out. Other requests can find a
// full block as soon as the pass that computes the block has begun; an event announces the
// block when that pass ends. Blocks that no request holds stay cached until their room is
// needed. They are evicted least recently used first, and never before their descendants.
//
// Differences from upstream:
//
//   - an admission does not count blocks of the prompt that running requests hold: a
//     prompt that shares its prefix with them needs that much less room. Upstream counts
//     all blocks, so requests with a long common prefix wait although there is room;
//   - the sequence admitted last is preempted, as in vLLM, and not the first decoding one:
//     it loses least, requests end roughly in order of arrival, and the oldest sequence
//     always makes progress;
//   - taking blocks is all or nothing; upstream keeps what it took before it failed;
//   - a block of a prompt can be found once the chunk that computes it has begun, not
//     from the first chunk on, so no request finds a block that is not there;
//   - at least the last token of a prompt is computed, since it gives the first output
//     token. That token comes with the pass that ends the prompt, which does not count
//     as a decoding row of that pass;
//   - a sequence gets the block for its next token before a pass, and is preempted at
//     that point; upstream computes the token and takes it back;
//   - prompts get the part of MaxBatchedTokens that the decoding rows leave;
//   - prefix caching and chunked prefill are always on, and the watermark is upstream's
//     default.
//
// A Worker belongs to one goroutine. Nothing depends on the order of a map: equal calls
// give equal reports.
//
//	w, err := mocker.New(mocker.Config{Blocks: 4096, BlockTokens: 16})
//	err = w.Submit(now, &mocker.Request{ID: 1, Tokens: prompt, Locals: locals, Hashes: hashes, OutputTokens: 100, Output: answer})
//	for {
//		at, ok := w.Wake()
//		if !ok {
//			break
//		}
//		report.Reset()
//		err = w.Pass(at, &report)
//	}
package mocker
