package radixcache

import "github.com/coppice-llm/coppice/kv"

// ghosts is a table of the latest removals, for Explain. Each entry states after which
// node, and with which page of tokens, a path used to continue. The table has a fixed
// size, so a removal may overwrite an older one with the same slot.
type ghosts struct{ table []ghost }

// ghost is one removal.
type ghost struct {
	ns     kv.Namespace
	parent NodeID // node at whose end the removed page began
	gen    uint32 // gen of parent
	start  int32  // number of tokens before the removed page
	page   uint32 // hash of the first removed page's tokens
	reason Reason
	clock  uint64 // clock at the removal; 0 in an empty slot
	stamp  uint64 // clock at the last use
}

// ghostSlots is the size of the table, a power of two: 4,096 removals.
const ghostSlots = 1 << 12

// reset forgets all removals.
func (g *ghosts) reset() { clear(g.table) }

// slot returns the index in the table, a hash of parent, page and start.
func (g *ghost) slot() uint32 {
	return (uint32(g.parent)*2654435761 ^ g.page ^ uint32(g.start)*40503) % ghostSlots
}

// hashPage is FNV-1a over at most a page of tokens, a token at a time.
func hashPage(tokens []kv.Token, pageTokens int) uint32 {
	h := uint32(2166136261)
	for _, t := range tokens[:min(len(tokens), pageTokens)] {
		h = (h ^ uint32(t)) * 16777619
	}
	return h
}
