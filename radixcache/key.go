package radixcache

import "github.com/coppice-llm/coppice/kv"

// NodeID names a node of one [Cache] while that node exists. Ids are reused after eviction.
// While a node is pinned, its id and the position at which its tokens end do not change; a
// split or a join may change the position at which they begin.
type NodeID uint32

// Root stands for "no node", as when nothing matched. Pinning or unpinning it does nothing.
const Root NodeID = 0

// Key names a prefix. Two keys share the pages of their common tokens from token 0 on, if
// they have the same namespace or these tokens are public in both.
type Key struct {
	// Namespace separates keys that must not share. Its fields are compared one by
	// one; different namespaces never share a node.
	Namespace kv.Namespace

	// Tokens is the whole sequence, from token 0 on, each below [MediaToken].
	// The caller keeps the slice.
	Tokens []kv.Token

	// PublicTokens is the number of first tokens that all Salts share, such as
	// those of a system prompt that holds no secret. They are stored under the
	// Namespace without its Salt, the other tokens under the whole Namespace. It is
	// rounded down to whole pages: 37 becomes 32 with pages of 16. Without a Salt
	// it has no effect.
	PublicTokens int

	// Media lists the runs of Tokens that are placeholders for something else, such
	// as the patches of an image, ascending and without overlap. Two runs of equal
	// placeholders share pages only if their hashes are equal.
	Media []kv.Media
}

// route is a key in the form in which the tree walks it: tokens[:public] in the namespace
// without salt, tokens[public:] in the key's own namespace.
type route struct {
	tokens []kv.Token
	ns     *kv.Namespace // the key's namespace
	public int           // number of public tokens, in whole pages; may exceed len(tokens)
	raw    bool          // insert must still check that all tokens are below MediaToken
}

// outer returns the namespace in which a route begins: the key's namespace, without salt if
// the route has public tokens.
func (r *route) outer() kv.Namespace {
	ns := *r.ns
	if r.public > 0 {
		ns.Salt = ""
	}
	return ns
}
