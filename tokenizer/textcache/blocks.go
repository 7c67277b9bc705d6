package textcache

import (
	"github.com/coppice-llm/coppice/kv"
)

// Blocks has the hashes of a text's blocks. The Cache keeps those of texts, in their order, with the
// parts in which the blocks end: the hashes of a block depend on all tokens before it.
type Blocks struct {
	BlockTokens  int          // of each block, at least 1
	Namespace    kv.Namespace // of the blocks
	PublicTokens int          // blocks within the first tokens are hashed without the namespace's salt

	Locals []kv.LocalHash
	Hashes []kv.BlockHash
}

// Reset makes b ready for another text, and keeps its memory.
func (b *Blocks) Reset() { *b = Blocks{Locals: b.Locals[:0], Hashes: b.Hashes[:0]} }

// shape has all that the hashes of a text's blocks depend on, except for the tokens.
type shape struct {
	blockTokens, publicTokens int
	seed, public              uint64
	prompt                    bool // Options.Prompt: tokens are before the first part
}

func (b *Blocks) shape(prompt bool) shape {
	s := shape{blockTokens: b.BlockTokens, publicTokens: b.PublicTokens, seed: b.Namespace.Seed(), prompt: prompt}
	open := b.Namespace
	open.Salt = ""
	s.public = open.Seed()
	return s
}

// extend appends the hashes of the blocks of tokens that are full and have none.
func (b *Blocks) extend(s *shape, tokens []kv.Token) {
	for lo := len(b.Hashes) * s.blockTokens; lo+s.blockTokens <= len(tokens); lo += s.blockTokens {
		seed := s.seed
		if lo+s.blockTokens <= s.publicTokens {
			seed = s.public
		}
		local := kv.HashLocal(tokens[lo:lo+s.blockTokens], seed)
		hash := kv.BlockHash(local)
		if n := len(b.Hashes); n > 0 {
			hash = kv.Chain(b.Hashes[n-1], local)
		}
		b.Locals, b.Hashes = append(b.Locals, local), append(b.Hashes, hash)
	}
}

// link has the hashes of the blocks that end in a part of a text, after certain parts. Its number is
// never given to another one, so a link says which parts are before it. Immutable.
type link struct {
	from, id uint64 // from: the link of the part before, 0 for the first part
	shape    shape
	locals   []kv.LocalHash
	hashes   []kv.BlockHash
}

// linkBytes is the memory of a link beside its hashes.
const linkBytes = 160

// maxLinks bounds the links of a part: it may be the same in several texts.
const maxLinks = 4

// unlinked is the number of a part whose hashes are not kept. It is no link's.
const unlinked = ^uint64(0)

func (l *link) size() int { return linkBytes + 16*len(l.hashes) }

// follow appends to w.blocks the hashes of the blocks that end in part p, which may be nil: dst has the
// tokens of the text up to its end.
func (w *walk) follow(p *kept, dst []kv.Token) {
	b := w.blocks
	if b == nil {
		return
	}
	if p == nil || w.at == unlinked {
		b.extend(&w.shape, dst)
		w.at = unlinked
		return
	}
	if l := w.of.linked(p, w.at, &w.shape); l != nil {
		b.Locals, b.Hashes = append(b.Locals, l.locals...), append(b.Hashes, l.hashes...)
		w.at = l.id
		return
	}
	n := len(b.Hashes)
	b.extend(&w.shape, dst)
	l := &link{from: w.at, id: w.of.links.Add(1), shape: w.shape}
	l.locals, l.hashes = append(l.locals, b.Locals[n:]...), append(l.hashes, b.Hashes[n:]...)
	w.of.join(p, l)
	w.at = l.id
}

// linked returns p's link after the link from, nil if there is none.
func (c *store) linked(p *kept, from uint64, s *shape) *link {
	shard := c.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	for _, l := range p.links {
		if l.from == from && l.shape == *s {
			return l
		}
	}
	return nil
}

// join adds a link to p, in place of the oldest one if there are many, unless p is no longer kept or has no room.
func (c *store) join(p *kept, l *link) {
	s := c.shard(p.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts[p.hash] != p || p.size()+l.size() > s.limit/2 {
		return
	}
	s.bytes -= p.size()
	if len(p.links) == maxLinks {
		p.links = p.links[:copy(p.links, p.links[1:])]
	}
	p.links = append(p.links, l)
	s.bytes += p.size()
	s.shrink()
}
