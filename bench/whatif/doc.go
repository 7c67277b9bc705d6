// Package whatif owns the scoring of recorded decisions (router/decisions): how long first tokens would have taken under other
// policies and weights, and how much each choice lost against the best one. It never sends a request, and does not know what the
// workers are: it learns their speed from the recording.
//
// The counterfactual model. A worker computes one prompt at a time, in the order in which they arrive, and decodes all its requests
// at once beside that. A prompt takes
//
//	Base + Token·(prompt tokens − cached tokens) + Running·(requests that decode there)
//
// and each further output token Decode + DecodeRunning·(requests that decode there). The five numbers are fitted to what the
// recording learnt: times to first tokens, and the cached tokens in the usage of answers. A worker's cache holds the blocks of the
// prompts that went there, the least recently used blocks leave when it has more than its pool, and it held before the recording
// what the first requests found there. The cache is one tier, outputs are not cached, and workers neither join nor leave.
//
// Each policy plays the recorded arrivals against this model, with the production router: its index learns blocks with the first
// token. So a policy lives with the caches and the queues that its own choices made. The regret of a choice is the time to the
// request's first token at the chosen worker minus that at the worker where it is the shortest, given these caches and queues. It
// does not count what the choice costs other requests; the times of the whole run do. A policy that places prompts by their hash
// (prefix-hash) places them elsewhere than the recorded router would, since the recording has other hashes.
//
// One goroutine does everything; the same recording and configuration give the same result.
//
//	rec, err := decisions.Read(file)
//	table, err := whatif.Score(ctx, whatif.Config{Policies: []router.Policy{router.CostLatency, router.CostRoundRobin}}, rec)
//	err = bench.WriteTable(os.Stdout, table)
package whatif
