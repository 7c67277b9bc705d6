package radixcache

import "github.com/coppice-llm/coppice/kv"

// Drop removes what the tree holds of a key and nothing else needs: from the end of the key upwards, nodes that are unpinned
// leaves. It stops at the first node that is pinned, that other keys continue, or at which a private space begins. If the tree
// holds a continuation of the key, Drop removes nothing. It returns freed with the freed pages appended. Cost: that of Match, and the number of
// nodes removed.
func (c *Cache) Drop(key Key, freed []kv.PageID) []kv.PageID {
	m := c.Match(key)
	at, end := m.Node, m.Tokens
	if p := m.Partial; p.Tokens > 0 && p.Tokens == len(key.Tokens)-m.Tokens {
		if n := &c.nodes[p.Node]; c.isTail(n) && n.tokens.Len() == p.Tokens {
			at, end = p.Node, len(key.Tokens)
		}
	}
	before := len(freed)
	for at != Root {
		n := &c.nodes[at]
		if n.flags&isRoot != 0 || n.pins > 0 || !n.isLeaf() || n.end() > end {
			break
		}
		parent := n.parent
		if parent != Root && c.nodes[parent].flags&isRoot != 0 {
			parent = Root // which the removal may close
		}
		freed = c.trim(at, n.pages.Len(), ByParking, freed)
		at = parent
	}
	if len(freed) > before {
		c.tidy()
		c.verify("Drop")
	}
	return freed
}
