package kvindex

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// TokensWithHashes is a prompt whose block hashes are computed when they are
// first asked for, each once for a block size. The zero value is an empty prompt
// of the public namespace; Reset keeps the memory.
type TokensWithHashes struct {
	tokens []kv.Token
	ns     kv.Namespace
	public int // of tokens, those that all salts share
	media  []kv.Media
	eagle  bool
	sizes  []hashed
	buf    []byte
	block  []uint64 // media of a block
}

// hashed is what is known for one block size.
type hashed struct {
	blockTokens int
	locals      []kv.LocalHash
	hashes      []kv.BlockHash // of the first blocks, at most len(locals)
}

// Reset starts another prompt without media. The tokens stay the caller's, who
// does not change them before the next Reset.
func (t *TokensWithHashes) Reset(tokens []kv.Token, ns kv.Namespace) {
	t.tokens, t.ns, t.public, t.media, t.eagle = tokens, ns, 0, nil, false
	t.drop()
}

// SetNamespace changes whose blocks these are; no hash stays valid.
func (t *TokensWithHashes) SetNamespace(ns kv.Namespace) {
	t.ns = ns
	t.drop()
}

// SetMedia says what stands behind tokens that only hold a place; no hash stays
// valid. The slice stays the caller's.
func (t *TokensWithHashes) SetMedia(media []kv.Media) {
	t.media = media
	t.drop()
}

// SetEagle lets each block have one token of the next one in its hash, as engines
// with an EAGLE draft model do; no hash stays valid.
func (t *TokensWithHashes) SetEagle(on bool) {
	t.eagle = on
	t.drop()
}

// drop forgets the hashes and keeps the memory.
// SetPublic says how many of the first tokens all salts share: the blocks within them are
// those of the namespace without a salt, as radixcache.Key.PublicTokens has it. Hashes
// are computed anew.
func (t *TokensWithHashes) SetPublic(tokens int) {
	t.public = max(tokens, 0)
	t.drop()
}

func (t *TokensWithHashes) drop() {
	for i := range t.sizes {
		t.sizes[i].locals, t.sizes[i].hashes = t.sizes[i].locals[:0], t.sizes[i].hashes[:0]
	}
}

// Tokens is the prompt.
func (t *TokensWithHashes) Tokens() []kv.Token { return t.tokens }

// Locals are the local hashes of the full blocks, valid until the next Reset or
// Set. blockTokens below 1 panics. Cost: O(tokens), the second time O(1).
func (t *TokensWithHashes) Locals(blockTokens int) []kv.LocalHash {
	return t.local(blockTokens).locals
}

// Hashes are the block hashes of the same blocks.
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

// Run is the blocks from the given one on, 0 <= from <= blocks, as [Index.Store]
// takes them.
func (t *TokensWithHashes) Run(blockTokens, from int) Run {
	hashes := t.Hashes(blockTokens)
	r := Run{Hashes: hashes[from:], Locals: t.Locals(blockTokens)[from:]}
	if from > 0 {
		r.Parent, r.HasParent = hashes[from-1], true
	}
	return r
}

// local hashes what is not hashed yet.
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
	window, usable := blockTokens, len(t.tokens)
	if t.eagle {
		window, usable = blockTokens+1, len(t.tokens)-1
	}
	blocks := max(0, usable) / blockTokens
	if len(h.locals) == blocks {
		return h
	}
	h.locals = slices.Grow(h.locals, blocks-len(h.locals))
	seed, shared := t.ns.Seed(), t.ns
	shared.Salt = ""
	public := shared.Seed()
	for i := len(h.locals); i < blocks; i++ {
		lo, seed := i*blockTokens, seed
		if lo+blockTokens <= t.public {
			seed = public
		}
		h.locals = append(h.locals, t.hash(lo, t.tokens[lo:lo+window], seed))
	}
	return h
}

// hash is kv.HashLocal or kv.HashLocalMedia of the tokens from lo on.
func (t *TokensWithHashes) hash(lo int, block []kv.Token, seed uint64) (local kv.LocalHash) {
	t.block = t.block[:0]
	for _, m := range t.media {
		if m.At < lo+len(block) && lo < m.At+m.Tokens && !slices.Contains(t.block, m.Hash) {
			t.block = append(t.block, m.Hash)
		}
	}
	if len(t.block) == 0 {
		return kv.HashLocal(block, seed)
	}
	local, t.buf = kv.HashLocalMedia(block, t.block, seed, t.buf)
	return local
}
