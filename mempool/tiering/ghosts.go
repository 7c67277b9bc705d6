package tiering

import "github.com/coppice-llm/coppice/mempool"

// maxGhosts bounds the ghosts, to some 6 MB of memory. With extents of 64 tokens they stand for
// 4 million tokens.
const maxGhosts = 1 << 16

// ghosts remembers the uses of extents that have left all tiers. Without it, an extent that is
// computed again after each eviction would always be on its first use and never be admitted to
// disk. When full, it forgets the oldest.
type ghosts struct {
	seen map[mempool.Key]ghost
	ring []mempool.Key // oldest first, starting at next
	next int
}

// ghost holds the uses of an extent and its index in the ring.
type ghost struct{ uses, at int }

// put remembers the uses of an extent.
func (g *ghosts) put(k mempool.Key, uses int) {
	if g.seen == nil {
		g.seen = map[mempool.Key]ghost{}
	}
	if len(g.ring) < maxGhosts {
		g.next = len(g.ring)
		g.ring = append(g.ring, k)
	} else if old := g.ring[g.next]; g.seen[old].at == g.next {
		delete(g.seen, old)
	}
	g.ring[g.next] = k
	g.seen[k] = ghost{uses, g.next}
	g.next = (g.next + 1) % maxGhosts
}

// take returns the remembered uses of an extent, 0 for none, and forgets them.
func (g *ghosts) take(k mempool.Key) int {
	uses := g.seen[k].uses
	delete(g.seen, k)
	return uses
}
