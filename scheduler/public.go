package scheduler

import "math"

// A prompt may begin with public tokens, which the cache keeps apart from the salt of their
// request (radixcache.Key.PublicTokens). Requests with different salts share these: as in the
// tree, so also while one of them computes or fetches them.

// publicTokens returns the number of q's first tokens that requests with any salt may share,
// in whole pages of size tokens: all, if q has no salt. Output is never public.
func (q *sequence) publicTokens(size int) int {
	if q.req.Namespace.Salt == "" {
		return math.MaxInt
	}
	n := min(q.req.PublicTokens, q.prompt)
	return n - n%size
}

// sharable returns how many of their first tokens q and o may share, if these are equal: all
// with equal namespaces, the public ones with different salts, else none. size is the tokens of
// a page.
func (q *sequence) sharable(o *sequence, size int) int {
	x, y := &q.req.Namespace, &o.req.Namespace
	switch {
	case *x == *y:
		return math.MaxInt
	case x.Model != y.Model || x.LoRA != y.LoRA:
		return 0
	}
	return min(q.publicTokens(size), o.publicTokens(size))
}

// together returns how many of their first tokens the tree keeps in the same nodes for q and
// o, if these are equal. It is less than sharable for requests of one salt with different
// public prefixes: after the shorter prefix, their nodes differ.
func (q *sequence) together(o *sequence, size int) int {
	n, m := q.publicTokens(size), o.publicTokens(size)
	if n != m {
		return min(n, m, q.sharable(o, size))
	}
	return q.sharable(o, size)
}
