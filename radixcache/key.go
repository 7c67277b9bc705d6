package radixcache

import "github.com/coppice-llm/coppice/kv"

// NodeID names a node of one [Cache] while that node lives. Ids are reused
// after eviction; a pinned node keeps its id, and the end of its tokens.
type NodeID uint32

// Root stands for "nothing matched". It is never evicted; pinning and
// unpinning it does nothing.
const Root NodeID = 0

// Key names a prefix. Two keys share what they have in common from token 0 on,
// if their namespaces let them.
type Key struct {
	// Namespace tells apart what must not be shared. Its fields are compared
	// one by one; different ones never share a node.
	Namespace kv.Namespace

	// Tokens are the whole sequence, from token 0 on, each below [MediaToken].
	// The caller keeps the slice.
	Tokens []kv.Token

	// PublicTokens is how many of the first tokens all Salts share, such as
	// those of a system prompt that holds no secret: these stand under the
	// Namespace without its Salt, the rest under the whole. Rounded down to
	// whole pages. It means nothing without a Salt.
	PublicTokens int

	// Media are the runs of Tokens that only stand for something else, such as
	// the patches of an image, ascending, without overlap.
	Media []kv.Media
}

// route is a key as the tree walks it: the tokens below public under one
// namespace, the rest under another.
type route struct {
	tokens []kv.Token
	ns     *kv.Namespace // of the key
	public int           // whole pages; more than tokens if these were cut short
	raw    bool          // insert has to see that the tokens are below MediaToken
}

// outer is the namespace under which a route begins.
func (r *route) outer() kv.Namespace {
	ns := *r.ns
	if r.public > 0 {
		ns.Salt = ""
	}
	return ns
}
