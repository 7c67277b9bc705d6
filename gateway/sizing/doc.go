// Package sizing owns the measure of a gateway at the size of a large fleet: what a choice of a
// worker costs, what the index takes, and what workers that come and go do to both. It sends no
// request and opens no connection: workers are ranks of the dispatcher, and their events are calls of
// its sink.
//
// Prompts are block hashes, made from a seed: reading and tokenizing a prompt have figures of their
// own. Everything after that is the production code of a gateway: dispatcher, index, router.
//
//	figures, err := sizing.Play(ctx, sizing.Config{Workers: 64, Sessions: 1000}, cpuTime, nil)
//	err = bench.WriteTable(os.Stdout, figures)
package sizing
