// Package kvindex owns the answer to one question: how many leading blocks of a prompt does each
// worker of a fleet hold? It is a radix tree over block hashes, updated by the workers' events.
// It never owns KV entries, never chooses a worker and never reads a clock; time comes in as
// now.
//
// A node is a run of blocks between two forks. A holder (a rank of a worker) covers the run up
// to a cut, so a lookup costs one step per run, however many blocks and workers there are. A
// holder of a block holds all blocks before it: removing a block also removes that holder's
// blocks after it. The index may undercount; it never overcounts.
//
// An example with three workers that hold prompts with a common prefix:
//
//	root ── [b0 b1 b2 b3] ─┬─ [b4 b5]      worker 1 holds b0 to b5
//	                       └─ [c4 c5 c6]   worker 2 holds b0 to b3 and all of this run,
//	                                       worker 3 the same up to c5: a cut after 2 blocks
//
// [Index.Find] of b0 to b3 and c4 to c6 returns 4 blocks for worker 1, 7 for worker 2 and 6 for
// worker 3.
//
// There is one domain of hashes, [kv.Chain]. Stored hashes are checked against it, so that no
// worker can give content a wrong name. [Names] translates the hashes of engines with a hash
// function of their own.
//
// [Index], [Approximate], [Names] and [TokensWithHashes] each belong to one goroutine.
// [Sharded], the only type with locks, may be used from any.
//
//	x, err := kvindex.New(kvindex.Config{})
//	w := kv.Rank{Worker: 3}
//	err = x.Store(w, kvindex.Run{Hashes: hashes, Locals: locals})
//	overlaps = x.Find(hashes, overlaps[:0]) // {w, len(hashes)}
//	known := x.Remove(w, hashes[10:])
package kvindex
