package radixcache

import "github.com/coppice-llm/coppice/kv"

// NodeID names a node of one [Cache] while that node lives. Ids are reused after
// eviction. A pinned node keeps its id and the position where its tokens end; where they
// begin may change, by a split or a join above.
type NodeID uint32

// Root stands for "nothing matched". It is never evicted; pinning or unpinning it does
// nothing.
const Root NodeID = 0

// Key names a prefix. Two keys share their common tokens from token 0 on, if their
// namespaces allow it.
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

// route is a key in the form in which the tree walks it: the tokens below public in the
// namespace without salt, the rest in the key's own.
type route struct {
	tokens []kv.Token
	ns     *kv.Namespace // the key's namespace
	public int           // number of public tokens, in whole pages; may exceed tokens that were cut short
	raw    bool          // tokens are not checked yet: insert must see that they are below MediaToken
}

// outer returns the namespace in which a route begins: without salt if it has public
// tokens.
func (r *route) outer() kv.Namespace {
	ns := *r.ns
	if r.public > 0 {
		ns.Salt = ""
	}
	return ns
}
