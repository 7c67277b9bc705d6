package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// TokensWithHashes is a prompt whose block hashes are computed on demand, each once for the block
// size in use. The zero value is an empty prompt in the namespace without salt. Reset makes it
// another prompt and reuses its memory.
type TokensWithHashes struct {
	tokens []kv.Token
	ns     kv.Namespace
	public int // number of leading tokens that all salts share

	blockTokens int // the size of the hashed blocks
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

// Take copies the hashes of the first full blocks of blockTokens tokens, which the caller has computed for this
// prompt, so that they are not computed again. Call it after Reset and SetPublic.
func (t *TokensWithHashes) Take(blockTokens int, locals []kv.LocalHash, hashes []kv.BlockHash) {
	t.blockTokens = blockTokens
	n := min(len(hashes), len(t.tokens)/blockTokens)
	t.locals, t.hashes = append(t.locals[:0], locals[:n]...), append(t.hashes[:0], hashes[:n]...)
}

// drop forgets the computed hashes and keeps their memory.
func (t *TokensWithHashes) drop() { t.locals, t.hashes = t.locals[:0], t.hashes[:0] }

// Locals returns the local hashes of the prompt's full blocks of blockTokens tokens. They are
// valid until the next Reset or SetPublic, or a call with another block size. It panics if
// blockTokens is below 1. It costs O(tokens) the first time, then O(1).
func (t *TokensWithHashes) Locals(blockTokens int) []kv.LocalHash {
	if blockTokens < 1 {
		panic("kvindex: blocks of no tokens")
	}
	if blockTokens != t.blockTokens {
		t.blockTokens = blockTokens
		t.drop()
	}
	blocks := len(t.tokens) / blockTokens
	if len(t.locals) == blocks {
		return t.locals
	}
	t.locals = slices.Grow(t.locals, blocks-len(t.locals))
	// A block entirely within the public prefix is hashed without the salt; one that crosses its
	// end has the salt.
	seed, shared := t.ns.Seed(), t.ns
	shared.Salt = ""
	public := shared.Seed()
	for i := len(t.locals); i < blocks; i++ {
		lo, seed := i*blockTokens, seed
		if lo+blockTokens <= t.public {
			seed = public
		}
		t.locals = append(t.locals, kv.HashLocal(t.tokens[lo:lo+blockTokens], seed))
	}
	return t.locals
}

// Hashes returns the block hashes of the same blocks as Locals. They are valid as long.
func (t *TokensWithHashes) Hashes(blockTokens int) []kv.BlockHash {
	locals := t.Locals(blockTokens)
	for i := len(t.hashes); i < len(locals); i++ {
		hash := kv.BlockHash(locals[i])
		if i > 0 {
			hash = kv.Chain(t.hashes[i-1], locals[i])
		}
		t.hashes = append(t.hashes, hash)
	}
	return t.hashes
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
