package router

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Staging says how the first of two stages chooses a bucket.
type Staging uint8

// The stagings.
const (
	ByTurn   Staging = iota // one after the other
	ByPrefix                // by the prompt's first blocks, so that each has prompts of its own kind
)

var stagingNames = enum.New[Staging]("router", "staging", "turn", "prefix")

func (s Staging) String() string { return stagingNames.Name(s) }

// UnmarshalText reads a staging's name.
func (s *Staging) UnmarshalText(text []byte) error { return stagingNames.Read(s, text) }

// MaxBuckets bounds the buckets of a fleet.
const MaxBuckets = 64

// Buckets is the first of two stages: it chooses a bucket of workers for a prompt, and a
// router, whose pools they are, the worker. Where prompts fall into a few kinds, each
// bucket has prompts of its own kinds, and need not hold the others' prefixes. Which
// workers are in which is [Deal]'s. One goroutine owns it.
type Buckets struct {
	n, blocks int
	by        Staging
	turn      int
}

// NewBuckets stages over n buckets, 1 to MaxBuckets. Under ByPrefix the hash of block
// number prefixBlocks chooses, or of the last one of a shorter prompt; a prompt without
// hashes goes by turn.
func NewBuckets(n int, by Staging, prefixBlocks int) (*Buckets, error) {
	if n < 1 || n > MaxBuckets || !stagingNames.Has(by) || prefixBlocks < 1 {
		return nil, fmt.Errorf("router: NewBuckets with %d buckets, staging %v, %d prefix blocks: want 1 to %d buckets, staging %v and 1 block at least",
			n, by, prefixBlocks, MaxBuckets, stagingNames.Names())
	}
	return &Buckets{n: n, by: by, blocks: prefixBlocks}, nil
}

// Pick is the index of the bucket for a prompt. What goes by turn moves the turn on.
func (b *Buckets) Pick(hashes []kv.BlockHash) int {
	bucket, turn := b.Peek(hashes)
	if turn {
		b.turn = (b.turn + 1) % b.n
	}
	return bucket
}

// Peek is what Pick would choose, and whether it is by turn.
func (b *Buckets) Peek(hashes []kv.BlockHash) (bucket int, turn bool) {
	if b.by == ByTurn || len(hashes) == 0 {
		return b.turn, true
	}
	prefix, best := uint64(hashes[min(len(hashes), b.blocks)-1]), uint64(0)
	for i := range b.n { // rendezvous: one bucket more moves only what it gets
		if h := mix(prefix, uint64(i)); h >= best {
			best, bucket = h, i
		}
	}
	return bucket, false
}

// Deal says which of n buckets, at least one, each worker is in; dst has the workers'
// order. Their ids must differ, all of them. The rule:
//
//   - Bucket b has len(workers)/n workers, and those below len(workers)%n one more.
//   - Every worker and bucket have a number, a hash of both. Of all pairs the one with the
//     highest goes together, then of those left, until all workers are dealt. A bucket that
//     is full gets no more.
//
// So it depends on nothing but who is there: routers that see the same workers deal alike,
// whoever came first. Sizes differ by one at most. One that comes or goes takes the place
// of another one only where that keeps the sizes so: of 64 workers in 4 buckets 1.1 others
// move on average, in 16 buckets 2.4. It costs a sort of len(workers)*n pairs.
func Deal(workers []kv.WorkerID, n int, dst []int) []int {
	type pair struct {
		draw           uint64
		worker, bucket int32
	}
	pairs := make([]pair, 0, len(workers)*n)
	for i, w := range workers {
		for b := range n {
			pairs = append(pairs, pair{mix(uint64(w), uint64(b)), int32(i), int32(b)})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.draw, a.draw), cmp.Compare(workers[a.worker], workers[b.worker]), cmp.Compare(a.bucket, b.bucket))
	})
	room := make([]int, n)
	for b := range room {
		room[b] = len(workers) / n
		if b < len(workers)%n {
			room[b]++
		}
	}
	from := len(dst)
	for range workers {
		dst = append(dst, -1)
	}
	for _, p := range pairs {
		if at := &dst[from+int(p.worker)]; *at < 0 && room[p.bucket] > 0 {
			*at = int(p.bucket)
			room[p.bucket]--
		}
	}
	return dst
}
