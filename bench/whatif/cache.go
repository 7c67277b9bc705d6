package whatif

import (
	"container/list"
	"time"

	"github.com/coppice-llm/coppice/router/decisions"
)

// cache holds the blocks that a simulated worker has cached, the most recently used first.
type cache struct {
	most   int // blocks; 0: no limit
	order  *list.List
	blocks map[decisions.Hash]*list.Element // of *block
}

type block struct {
	hash  decisions.Hash
	known time.Duration // when it is computed, and the router's index learns of it
}

func newCache(most int) *cache {
	return &cache{most: most, order: list.New(), blocks: map[decisions.Hash]*list.Element{}}
}

// found returns the number of leading blocks of a prompt that the cache has at a time; beyond all times, those that it will have.
func (c *cache) found(chain []decisions.Hash, at time.Duration) int {
	for i, h := range chain {
		e := c.blocks[h]
		if e == nil || e.Value.(*block).known > at {
			return i
		}
	}
	return len(chain)
}

// use makes the blocks of a prompt the most recently used ones, the first of them most of all, so that a prefix outlives what
// continues it. Blocks that are new become known at a time.
func (c *cache) use(chain []decisions.Hash, known time.Duration) {
	for i := len(chain) - 1; i >= 0; i-- {
		if e := c.blocks[chain[i]]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		c.blocks[chain[i]] = c.order.PushFront(&block{chain[i], known})
	}
	for c.most > 0 && c.order.Len() > c.most {
		delete(c.blocks, c.order.Remove(c.order.Back()).(*block).hash)
	}
}
