package router

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
	"github.com/coppice-llm/coppice/kv"
)

// Staging is the way in which the first of two stages chooses a bucket.
type Staging uint8

// The stagings.
const (
	ByTurn   Staging = iota // round robin over the buckets
	ByPrefix                // by the prompt's first blocks, so that each bucket gets its own kinds of prompts
)

var stagingNames = enum.New[Staging]("router", "staging", "turn", "prefix")

func (s Staging) String() string { return stagingNames.Name(s) }

// UnmarshalText reads a staging's name.
func (s *Staging) UnmarshalText(text []byte) error { return stagingNames.Read(s, text) }

// MaxBuckets is the largest number of buckets of a fleet.
const MaxBuckets = 64

// Buckets is the first of two stages: it chooses a bucket of workers for a prompt. A
// router, in which each bucket is a pool, then chooses the worker. Where prompts fall
// into a few kinds, each bucket caches only the prefixes of its own kinds. [Deal]
// assigns the workers to buckets. One goroutine owns a Buckets.
type Buckets struct {
	n, blocks int
	by        Staging
	turn      int
}

// NewBuckets returns a stage over n buckets (1 to MaxBuckets) that chooses as by says. Under
// ByPrefix Pick hashes a single chained block hash, hashes[prefixBlocks-1], or the last hash if
// the prompt has fewer. A chained hash stands for all blocks before it, so one hash identifies
// the whole prefix. A prompt without hashes goes by turn. Any argument out of range is an error;
// prefixBlocks is at least 1.
func NewBuckets(n int, by Staging, prefixBlocks int) (*Buckets, error) {
	if n < 1 || n > MaxBuckets || !stagingNames.Has(by) || prefixBlocks < 1 {
		return nil, fmt.Errorf("router: NewBuckets with %d buckets, staging %v, %d prefix blocks: want 1 to %d buckets, staging %v and 1 block at least",
			n, by, prefixBlocks, MaxBuckets, stagingNames.Names())
	}
	return &Buckets{n: n, by: by, blocks: prefixBlocks}, nil
}

// Pick returns the bucket, 0 to n-1, for a prompt with these chained block hashes. If the bucket
// was chosen by turn, the turn moves on to the next bucket.
func (b *Buckets) Pick(hashes []kv.BlockHash) int {
	bucket, turn := b.Peek(hashes)
	if turn {
		b.turn = (b.turn + 1) % b.n
	}
	return bucket
}

// Peek returns the bucket that Pick would choose, and whether Pick would choose it by turn. It
// does not move the turn.
//
// Under ByPrefix the choice is rendezvous hashing: the bucket with the highest hash of (prefix,
// bucket). When a fleet of n buckets gets one more, the new bucket takes 1/(n+1) of the
// prefixes, and no other prefix changes its bucket.
func (b *Buckets) Peek(hashes []kv.BlockHash) (bucket int, turn bool) {
	if b.by == ByTurn || len(hashes) == 0 {
		return b.turn, true
	}
	prefix, best := uint64(hashes[min(len(hashes), b.blocks)-1]), uint64(0)
	for i := range b.n {
		if h := mix(prefix, uint64(i)); h >= best {
			best, bucket = h, i
		}
	}
	return bucket, false
}

// Deal assigns each worker to one of n buckets (n at least 1) and appends the buckets
// to dst, in the order of workers. Worker ids must be distinct. The rule:
//
//   - Bucket b gets len(workers)/n workers; buckets below len(workers)%n get one more.
//   - Each pair of worker and bucket has a number, a hash of both. The pair with the
//     highest number is assigned first, then the next, until all workers are assigned.
//     A full bucket gets no more.
//
// The result depends only on the set of workers, so routers that know the same workers
// agree, whatever the order in which the workers joined. Sizes differ by at most one. A worker that
// joins or leaves displaces others only to keep the sizes so: with 64 workers, 1.1
// others move on average in 4 buckets, 2.4 in 16. It costs a sort of len(workers)*n
// pairs.
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
