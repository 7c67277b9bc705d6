package radixcache

import "github.com/coppice-llm/coppice/kv"

// ghosts remember the latest removals: at which node, and with which page of
// tokens, something used to go on. The table is of fixed size; a removal may
// push an older one out.
type ghosts struct{ table []ghost }

type ghost struct {
	ns     kv.Namespace
	parent NodeID // at whose end, or inside which, the removed page began
	gen    uint32 // of parent
	start  int32  // tokens before it
	page   uint32 // hash of the page's tokens
	reason Reason
	clock  uint64 // when; 0 in an empty slot
	stamp  uint64 // last use
}

// ghostSlots is a power of two.
const ghostSlots = 1 << 12

func (g *ghosts) reset() { clear(g.table) }

func (g *ghost) slot() uint32 {
	return (uint32(g.parent)*2654435761 ^ g.page ^ uint32(g.start)*40503) % ghostSlots
}

// hashPage is FNV-1a by tokens, over at most a page.
func hashPage(tokens []kv.Token, pageTokens int) uint32 {
	h := uint32(2166136261)
	for _, t := range tokens[:min(len(tokens), pageTokens)] {
		h = (h ^ uint32(t)) * 16777619
	}
	return h
}
