package tiering

import "github.com/coppice-llm/coppice/mempool"

// maxGhosts is how many extents are remembered that have left all tiers: some 6 MB. An
// extent of 64 tokens each, they are 4 million tokens.
const maxGhosts = 1 << 16

// ghosts remembers how often extents were used that are nowhere any more. Without it what
// is asked for again after it has left the device would be on its first use each time, and
// never go to disk. It forgets the oldest.
type ghosts struct {
	seen map[mempool.Key]ghost
	ring []mempool.Key // by age, from next on
	next int
}

type ghost struct{ uses, at int }

// put remembers an extent.
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

// take is how often an extent was used, 0 if it is not remembered; it is not any more.
func (g *ghosts) take(k mempool.Key) int {
	uses := g.seen[k].uses
	delete(g.seen, k)
	return uses
}
