package router

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/kv"
)

// Staging says how the first of two stages chooses a router.
type Staging uint8

// The stagings.
const (
	ByTurn   Staging = iota // one after the other
	ByPrefix                // by the prompt's first blocks, so that each has prompts of its own kind
)

var stagingNames = []string{"turn", "prefix"}

func (s Staging) String() string {
	if int(s) < len(stagingNames) {
		return stagingNames[s]
	}
	return fmt.Sprintf("staging(%d)", uint8(s))
}

// UnmarshalText reads a staging's name.
func (s *Staging) UnmarshalText(text []byte) error {
	i := slices.Index(stagingNames, string(text))
	if i < 0 {
		return fmt.Errorf("router: unknown staging %q, want one of %v", text, stagingNames)
	}
	*s = Staging(i)
	return nil
}

// Buckets is a router of routers, each of which has workers of its own: where
// prompts fall into a few kinds, none of their workers holds the others' prefixes.
// One goroutine owns it and its routers.
type Buckets struct {
	routers []*Router
	by      Staging
	blocks  int
	turn    int
}

// NewBuckets stages over routers, at least one. Under ByPrefix the hash of block
// number prefixBlocks chooses, or of the last one of a shorter prompt; a prompt
// without hashes goes by turn.
func NewBuckets(by Staging, prefixBlocks int, routers ...*Router) (*Buckets, error) {
	if len(routers) == 0 || int(by) >= len(stagingNames) || prefixBlocks < 1 {
		return nil, fmt.Errorf("router: NewBuckets with staging %v, %d prefix blocks, %d routers: want a staging, 1 block and 1 router at least", by, prefixBlocks, len(routers))
	}
	return &Buckets{routers: slices.Clone(routers), by: by, blocks: prefixBlocks}, nil
}

// Pick is the index of the router for a prompt. Under ByTurn it moves on.
func (b *Buckets) Pick(hashes []kv.BlockHash) int {
	if b.by == ByTurn || len(hashes) == 0 {
		b.turn = (b.turn + 1) % len(b.routers)
		return (b.turn + len(b.routers) - 1) % len(b.routers)
	}
	first := uint64(hashes[min(len(hashes), b.blocks)-1])
	best, bucket := uint64(0), 0
	for i := range b.routers { // rendezvous: one router more moves only what it gets
		if h := mix(first, uint64(i)); h >= best {
			best, bucket = h, i
		}
	}
	return bucket
}

// Router is the i-th.
func (b *Buckets) Router(i int) *Router { return b.routers[i] }

// Select is [Router.Select] of the bucket's router, whose index it returns: the
// reservation is that router's. One that has no workers is passed over.
func (b *Buckets) Select(now time.Duration, req *Request) (int, Decision, error) {
	first := b.Pick(req.Hashes)
	for i := range b.routers {
		at := (first + i) % len(b.routers)
		d, err := b.routers[at].Select(now, req)
		if !errors.Is(err, ErrNoWorkers) {
			return at, d, err
		}
	}
	return first, Decision{}, ErrNoWorkers
}
