package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// TokensWithHashes is a prompt whose block hashes are computed on demand, once per block size.
// The zero value is an empty prompt in the namespace without salt. Reset makes it another prompt
// and reuses its memory.
type TokensWithHashes struct {
	tokens []kv.Token
	ns     kv.Namespace
	public int // number of leading tokens that all salts share
	sizes  []hashed
}

// hashed holds the hashes for one block size.
type hashed struct {
	blockTokens int
	locals      []kv.LocalHash
	hashes      []kv.BlockHash // of the first blocks; at most len(locals)
}

// Reset starts another prompt. The caller keeps the tokens, and must not change them before the
// next Reset.
func (t *TokensWithHashes) Reset(tokens []kv.Token, ns kv.Namespace) {
	t.tokens, t.ns, t.public = tokens, ns, 0
	t.drop()
}

// SetPublic sets the number of leading tokens that all salts share: the blocks within them are
// hashed as in the namespace without a salt, see radixcache.Key.PublicTokens. It drops the
// computed hashes.
//
// Example: with blocks of 16 and 40 public tokens, blocks 0 and 1 are shared by all salts. Block 2
// has 8 private tokens, so it and all later ones are hashed with the salt.
func (t *TokensWithHashes) SetPublic(tokens int) {
	t.public = max(tokens, 0)
	t.drop()
}

// drop forgets the computed hashes and keeps their memory.
func (t *TokensWithHashes) drop() {
	for i := range t.sizes {
		t.sizes[i].locals, t.sizes[i].hashes = t.sizes[i].locals[:0], t.sizes[i].hashes[:0]
	}
}

// Locals returns the local hashes of the prompt's full blocks of blockTokens tokens. They are
// valid until the next Reset or SetPublic. It panics if blockTokens is below 1. It costs
// O(tokens) the first time, then O(1).
func (t *TokensWithHashes) Locals(blockTokens int) []kv.LocalHash {
	return t.local(blockTokens).locals
}

// Hashes returns the block hashes of the same blocks as Locals. They are valid as long.
func (t *TokensWithHashes) Hashes(blockTokens int) []kv.BlockHash {
	h := t.local(blockTokens)
	for i := len(h.hashes); i < len(h.locals); i++ {
		hash := kv.BlockHash(h.locals[i])
		if i > 0 {
			hash = kv.Chain(h.hashes[i-1], h.locals[i])
		}
		h.hashes = append(h.hashes, hash)
	}
	return h.hashes
}

// Run returns the full blocks from index from on, as a Run for [Index.Store]. from is between 0
// and the number of full blocks; otherwise Run panics.
func (t *TokensWithHashes) Run(blockTokens, from int) Run {
	hashes := t.Hashes(blockTokens)
	r := Run{Hashes: hashes[from:], Locals: t.Locals(blockTokens)[from:]}
	if from > 0 {
		r.Parent, r.HasParent = hashes[from-1], true
	}
	return r
}

// local returns the hashes for a block size, after computing the local hashes that are missing.
func (t *TokensWithHashes) local(blockTokens int) *hashed {
	if blockTokens < 1 {
		panic("kvindex: blocks of no tokens")
	}
	at := slices.IndexFunc(t.sizes, func(h hashed) bool { return h.blockTokens == blockTokens })
	if at < 0 {
		at = len(t.sizes)
		t.sizes = append(t.sizes, hashed{blockTokens: blockTokens})
	}
	h := &t.sizes[at]
	blocks := len(t.tokens) / blockTokens
	if len(h.locals) == blocks {
		return h
	}
	h.locals = slices.Grow(h.locals, blocks-len(h.locals))
	// A block entirely within the public prefix is hashed without the salt; one that crosses its
	// end has the salt.
	seed, shared := t.ns.Seed(), t.ns
	shared.Salt = ""
	public := shared.Seed()
	for i := len(h.locals); i < blocks; i++ {
		lo, seed := i*blockTokens, seed
		if lo+blockTokens <= t.public {
			seed = public
		}
		h.locals = append(h.locals, kv.HashLocal(t.tokens[lo:lo+blockTokens], seed))
	}
	return h
}
