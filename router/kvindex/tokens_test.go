package kvindex

import (
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func upTo(n int) []kv.Token {
	tokens := make([]kv.Token, n)
	for i := range tokens {
		tokens[i] = kv.Token(i)
	}
	return tokens
}

// TestTokensWithHashes has the cases and vectors of Dynamo's tests.
func TestTokensWithHashes(t *testing.T) {
	var p TokensWithHashes
	for _, size := range []int{11, 32, 64} {
		for tokens, blocks := range map[int]int{0: 0, size - 1: 0, size: 1, size + 1: 1, 2*size + 1: 2} {
			p.Reset(upTo(tokens), kv.Namespace{})
			if got := len(p.Locals(size)); got != blocks || len(p.Hashes(size)) != blocks {
				t.Errorf("%d tokens in blocks of %d: %d", tokens, size, got)
			}
		}
	}
	p.Reset(upTo(64), kv.Namespace{})
	if p.Locals(16)[0] != 15310707395893867146 || p.Locals(64)[0] != 3480597578098033343 || p.Hashes(64)[0] != 3480597578098033343 {
		t.Errorf("%d, %d", p.Locals(16)[0], p.Locals(64)[0])
	}
	if first, again := &p.Locals(16)[0], &p.Locals(16)[0]; first != again {
		t.Error("hashed again")
	}
	p.Reset([]kv.Token{1, 2, 3, 4, 1, 2, 3, 4}, kv.Namespace{LoRA: "my-lora", Salt: "tenant-a"})
	if got := p.Locals(4)[0]; got != 6157910915076630503 {
		t.Errorf("namespace %d", got)
	}
}

// TestTokensAgreeWithKV: the path without a copy hashes as kv does, chain included.
func TestTokensAgreeWithKV(t *testing.T) {
	tokens := upTo(1000)
	for i := range tokens {
		tokens[i] *= 2654435761
	}
	ns := kv.Namespace{Salt: "s"}
	var p TokensWithHashes
	p.Reset(tokens, ns)
	for _, size := range []int{1, 3, 16, 100} {
		h := kv.NewHasher(ns, size)
		for i := range p.Locals(size) {
			hash, local := h.Next(tokens[i*size : (i+1)*size])
			if p.Hashes(size)[i] != hash || p.Locals(size)[i] != local {
				t.Fatalf("block %d of %d tokens: %x %x, want %x %x", i, size, p.Hashes(size)[i], p.Locals(size)[i], hash, local)
			}
		}
	}
	r := p.Run(16, 5)
	if r.Parent != p.Hashes(16)[4] || !r.HasParent || len(r.Hashes) != 57 || len(r.Locals) != 57 {
		t.Errorf("run %+v", r)
	}
}
