package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// AppendHashes returns dst with the hashes of the blocks appended that end within the first
// tokens of the path to node at, in order; the argument tokens is their number. Without
// Config.Events it appends nothing. Cost: the path, and the copy. With blocks of 16, 40
// tokens give two hashes, of [0,16) and [16,32).
func (c *Cache) AppendHashes(at NodeID, tokens int, dst []kv.BlockHash) []kv.BlockHash {
	base := len(dst)
	for id := at; id != Root; id = c.nodes[id].parent {
		if n := &c.nodes[id]; n.hashes != nil && int(n.start) < tokens {
			most := c.blocksEnding(int(n.start), min(n.end(), tokens)-int(n.start))
			for _, h := range slices.Backward((*n.hashes)[:most]) {
				dst = append(dst, h)
			}
		}
	}
	slices.Reverse(dst[base:])
	return dst
}
