package prompt

import (
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
)

// textCache remembers the tokens of texts, those that were asked for longest ago given
// up first. Texts are compared, so that equal hashes can't yield wrong tokens; the seed
// is secret, so that none can be made to push each other out.
type textCache struct {
	seed   uint64
	shards []textShard // a power of two
}

// textShard is what goroutines share: it is locked for some ten nanoseconds at a time.
type textShard struct {
	mu     sync.Mutex
	texts  map[uint64]*cachedText
	recent cachedText // the ring's head: next is the newest, prev the oldest
	bytes  int        // of all in texts, see size
	limit  int
	hits   uint64
	misses uint64
	_      [32]byte // a shard has cache lines of its own
}

// cachedText is not changed once it is made, but for its place in the ring.
type cachedText struct {
	hash       uint64
	text       string
	tokens     []kv.Token
	prev, next *cachedText
}

// placeBytes is about what a cachedText takes itself, and its place in a map whose
// tables are half full.
const placeBytes = 128

func (c *cachedText) size() int {
	return len(c.text) + 4*len(c.tokens) + placeBytes
}

// Shards have at least shardBytes, and there are at most maxShards.
const (
	maxShards  = 16
	shardBytes = 1 << 20
)

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

// get gives the tokens of text, which are not to be changed.
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

// put remembers text, unless it takes over half of its shard. It keeps neither text
// nor tokens, but copies.
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

func (s *textShard) drop(t *cachedText) {
	s.unlink(t)
	s.bytes -= t.size()
	delete(s.texts, t.hash)
}

func (s *textShard) unlink(t *cachedText) { t.prev.next, t.next.prev = t.next, t.prev }

// link makes t the newest.
func (s *textShard) link(t *cachedText) {
	t.prev, t.next = &s.recent, s.recent.next
	t.prev.next, t.next.prev = t, t
}
