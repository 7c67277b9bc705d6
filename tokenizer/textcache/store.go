package textcache

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-llm/coppice/kv"
)

// store keeps the tokens of parts, and evicts the part that was not used for the longest time. A
// lookup compares the parts, so equal hashes never yield wrong tokens. The seed of the hash is secret,
// so that a client can't construct texts whose hashes collide and evict each other.
type store struct {
	seed   uint64
	shards []shard // their number is a power of two
}

// shard is one part of the store under its own lock, which is held for about ten nanoseconds.
type shard struct {
	mu     sync.Mutex
	parts  map[uint64]*kept
	recent kept // head of the ring: next is the newest, prev the oldest
	bytes  int  // sum of size over all parts
	limit  int
	_      [64]byte // keeps shards on separate cache lines
}

// key has all that the tokens of a part depend on, and its owner.
type key struct {
	hash   uint64
	owner  string
	text   string
	inside bool  // Options.Inside
	plain  []int // Options.Plain
}

func (k *key) equals(o *key) bool {
	return k.text == o.text && k.inside == o.inside && k.owner == o.owner && slices.Equal(k.plain, o.plain)
}

// kept is a part and its tokens. Only its links and its place in the ring change.
type kept struct {
	key
	tokens     []kv.Token
	steps      int     // taken by regular expressions
	links      []*link // at most maxLinks
	prev, next *kept
}

// placeBytes is an estimate of the memory of a part beside its text and tokens, with its entry in a
// map that is half full.
const placeBytes = 192

// size returns the number of bytes that p counts for.
func (p *kept) size() int {
	n := len(p.text) + len(p.owner) + 4*len(p.tokens) + 8*len(p.plain) + placeBytes
	for _, l := range p.links {
		n += l.size()
	}
	return n
}

// Limits of the shards: with more than one shard, each has at least shardBytes; at most maxShards.
const (
	maxShards  = 16
	shardBytes = 1 << 20
)

// newStore returns a store of at most limit bytes, divided over 1 to 16 shards.
func newStore(limit int) store {
	n := 1
	for n < maxShards && limit/(2*n) >= shardBytes {
		n *= 2
	}
	c := store{seed: rand.Uint64(), shards: make([]shard, n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.parts, s.limit = map[uint64]*kept{}, limit/n
		s.recent.prev, s.recent.next = &s.recent, &s.recent
	}
	return c
}

func (c *store) shard(hash uint64) *shard {
	return &c.shards[hash>>32&uint64(len(c.shards)-1)]
}

// get returns the part with that key, nil if it is not there. The caller must not change it.
func (c *store) get(k *key) *kept {
	s := c.shard(k.hash)
	s.mu.Lock()
	found := s.parts[k.hash]
	if found != nil {
		s.unlink(found)
		s.link(found)
	}
	s.mu.Unlock()
	if found == nil || !found.equals(k) {
		return nil
	}
	return found
}

// put keeps copies of a part and of its tokens and returns the part. It returns nil if they would take more
// than half of a shard.
func (c *store) put(k key, tokens []kv.Token, steps int) *kept {
	s := c.shard(k.hash)
	made := &kept{key: k, tokens: tokens, steps: steps}
	if made.size() > s.limit/2 {
		return nil
	}
	made.text, made.owner = strings.Clone(k.text), strings.Clone(k.owner)
	made.tokens = append(make([]kv.Token, 0, len(tokens)), tokens...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.parts[k.hash]; old != nil {
		s.drop(old)
	}
	s.parts[k.hash] = made
	s.link(made)
	s.bytes += made.size()
	s.shrink()
	return made
}

// shrink drops the oldest parts until the others fit.
func (s *shard) shrink() {
	for s.bytes > s.limit {
		s.drop(s.recent.prev)
	}
}

// drop removes a part.
func (s *shard) drop(p *kept) {
	s.unlink(p)
	s.bytes -= p.size()
	delete(s.parts, p.hash)
}

func (s *shard) unlink(p *kept) { p.prev.next, p.next.prev = p.next, p.prev }

// link makes p the newest part.
func (s *shard) link(p *kept) {
	p.prev, p.next = &s.recent, s.recent.next
	p.prev.next, p.next.prev = p, p
}

// Stats counts what a Cache holds and has done.
type Stats struct {
	Parts, Bytes int
	// Reused and Encoded are numbers of tokens: those found in the cache, and those that were encoded.
	Reused, Encoded uint64
}

// Stats returns the counts of c; all 0 if c is nil.
func (c *Cache) Stats() (all Stats) {
	if c == nil {
		return all
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		all.Parts += len(s.parts)
		all.Bytes += s.bytes
		s.mu.Unlock()
	}
	all.Reused, all.Encoded = c.reused.Load(), c.encoded.Load()
	return all
}
