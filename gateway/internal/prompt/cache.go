package prompt

import (
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
)

// textCache caches the tokens of texts, and evicts the text that was not used for the longest
// time. A lookup compares the texts, so equal hashes never yield wrong tokens. The seed of the
// hash is secret, so that a client can't construct texts whose hashes collide and evict each
// other.
type textCache struct {
	seed   uint64
	shards []textShard // their number is a power of two
}

// textShard is one part of the cache under its own lock, which is held for about ten
// nanoseconds.
type textShard struct {
	mu     sync.Mutex
	texts  map[uint64]*cachedText
	recent cachedText // head of the ring: next is the newest, prev the oldest
	bytes  int        // sum of size over all texts
	limit  int
	hits   uint64
	misses uint64
	_      [32]byte // keeps shards on separate cache lines
}

// cachedText is a text and its tokens. Only its place in the ring changes.
type cachedText struct {
	hash       uint64
	text       string
	tokens     []kv.Token
	prev, next *cachedText
}

// placeBytes is an estimate of the memory of a cachedText without its text and tokens, with its
// entry in a map that is half full.
const placeBytes = 128

// size returns the number of bytes that c counts for in the cache, with 4 bytes per token.
func (c *cachedText) size() int {
	return len(c.text) + 4*len(c.tokens) + placeBytes
}

// Limits of the shards: with more than one shard, each has at least shardBytes; at most maxShards.
const (
	maxShards  = 16
	shardBytes = 1 << 20
)

// newTextCache returns a cache of at most limit bytes, divided over 1 to 16 shards.
func newTextCache(limit int) *textCache {
	n := 1
	for n < maxShards && limit/(2*n) >= shardBytes {
		n *= 2
	}
	c := &textCache{seed: rand.Uint64(), shards: make([]textShard, n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.texts, s.limit = map[uint64]*cachedText{}, limit/n
		s.recent.prev, s.recent.next = &s.recent, &s.recent
	}
	return c
}

func (c *textCache) hash(text string) uint64 { return xxh3.HashStringSeed(text, c.seed) }

func (c *textCache) shard(hash uint64) *textShard {
	return &c.shards[hash>>32&uint64(len(c.shards)-1)]
}

// get returns the cached tokens of text, whose hash is hash. The caller must not change them.
// The second result is false if text is not in the cache.
func (c *textCache) get(hash uint64, text string) ([]kv.Token, bool) {
	s := c.shard(hash)
	s.mu.Lock()
	found := s.texts[hash]
	if found == nil {
		s.misses++
		s.mu.Unlock()
		return nil, false
	}
	s.hits++
	s.unlink(found)
	s.link(found)
	s.mu.Unlock()
	if found.text != text {
		return nil, false
	}
	return found.tokens, true
}

// put stores copies of text, whose hash is hash, and of its tokens, unless they would take more
// than half of a shard.
func (c *textCache) put(hash uint64, text string, tokens []kv.Token) {
	s := c.shard(hash)
	made := &cachedText{hash: hash, text: text, tokens: tokens}
	if made.size() > s.limit/2 {
		return
	}
	made.text = strings.Clone(text)
	made.tokens = append(make([]kv.Token, 0, len(tokens)), tokens...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.texts[hash]; old != nil {
		s.drop(old)
	}
	s.texts[hash] = made
	s.link(made)
	for s.bytes += made.size(); s.bytes > s.limit; {
		s.drop(s.recent.prev)
	}
}

// drop removes an entry.
func (s *textShard) drop(t *cachedText) {
	s.unlink(t)
	s.bytes -= t.size()
	delete(s.texts, t.hash)
}

func (s *textShard) unlink(t *cachedText) { t.prev.next, t.next.prev = t.next, t.prev }

// link makes t the newest entry.
func (s *textShard) link(t *cachedText) {
	t.prev, t.next = &s.recent, s.recent.next
	t.prev.next, t.next.prev = t, t
}
