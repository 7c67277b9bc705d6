package radixcache

import "github.com/coppice-llm/coppice/kv"

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
	public int // whole pages; more than tokens if these were cut short
	outer  kv.Namespace
	ns     kv.Namespace
}

// route reads a key without changing the tree: a medium that it does not hold
// cuts the key short.
func (c *Cache) route(key *Key) route {
	if len(key.Media) == 0 {
		return c.routeOf(key, key.Tokens)
	}
	return c.routeOf(key, c.media.read(key))
}

// routeIn is route for what is going to be held.
func (c *Cache) routeIn(key *Key) route {
	if len(key.Media) == 0 {
		return c.routeOf(key, key.Tokens)
	}
	r := c.routeOf(key, c.media.write(key))
	r.public = min(r.public, c.floorTokens(len(r.tokens)))
	return r
}

func (c *Cache) routeOf(key *Key, tokens []kv.Token) route {
	r := route{tokens: tokens, outer: key.Namespace, ns: key.Namespace}
	if key.PublicTokens > 0 && key.Namespace.Salt != "" {
		r.public = c.floorTokens(min(key.PublicTokens, len(key.Tokens)))
	}
	if r.public > 0 {
		r.outer.Salt = ""
	}
	return r
}
