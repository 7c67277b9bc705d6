// Package kvindex owns the answer to one question: which worker of a fleet holds
// how much of a prompt. It is a radix tree over block hashes, fed with what
// workers say they store and remove. It never owns KV entries, never chooses a
// worker and never reads a clock; time comes in as now.
//
// A node is a run of blocks between two forks. A holder (a rank of a worker)
// covers the run up to a cut, so a lookup costs one step for each run,
// however many blocks and workers there are. A holder of a block holds all blocks before
// it: removing a block ends what that holder had after it. The index may
// undercount, it never overcounts.
//
// There is one domain of hashes, [kv.Chain]; what is stored is checked against
// it, so that no worker can give content a wrong name. [Names] maps the hashes of
// engines that have their own.
//
// [Index], [Approximate], [Names] and [TokensWithHashes] belong to one goroutine
// each. [Sharded], the only type with locks, may be used from any.
//
//	x, err := kvindex.New(kvindex.Config{})
//	w := kv.Rank{Worker: 3}
//	err = x.Store(w, kvindex.Run{Hashes: hashes, Locals: locals})
//	overlaps = x.Find(locals, overlaps[:0]) // {w, len(locals)}
//	known := x.Remove(w, hashes[10:])
package kvindex
