package kv

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// The vectors are Dynamo's: indexes of both must agree on every hash.
func TestLocalHashVectors(t *testing.T) {
	upTo15 := make([]Token, 16)
	for i := range upTo15 {
		upTo15[i] = Token(i)
	}
	for _, tc := range []struct {
		name   string
		ns     Namespace
		tokens []Token
		want   LocalHash
	}{
		{"1-4", Namespace{}, []Token{1, 2, 3, 4}, 14643705804678351452},
		{"5-8", Namespace{}, []Token{5, 6, 7, 8}, 16777012769546811212},
		{"9-12", Namespace{}, []Token{9, 10, 11, 12}, 483935686894639516},
		{"0-15", Namespace{}, upTo15, 15310707395893867146},
		{"lora", Namespace{LoRA: "my-lora"}, []Token{1, 2, 3, 4}, 15671544057904749233},
		{"salt", Namespace{Salt: "tenant-a"}, []Token{1, 2, 3, 4}, 5738685477468498325},
		{"lora and salt", Namespace{LoRA: "my-lora", Salt: "tenant-a"}, []Token{1, 2, 3, 4}, 6157910915076630503},
	} {
		if got := HashLocal(tc.tokens, tc.ns.Seed()); got != tc.want {
			t.Errorf("%s: local hash %d, want %d", tc.name, got, tc.want)
		}
		// As machines of the other byte order have it.
		if got := xxh3.HashSeed(AppendTokens(nil, tc.tokens), tc.ns.Seed()); LocalHash(got) != tc.want {
			t.Errorf("%s: local hash of the written tokens is %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestChainVectors(t *testing.T) {
	h := NewHasher(Namespace{}, 4)
	want := []BlockHash{14643705804678351452, 4945711292740353085, 12583592247330656132}
	for i, w := range want {
		block := []Token{Token(4*i + 1), Token(4*i + 2), Token(4*i + 3), Token(4*i + 4)}
		if got, _ := h.Next(block); got != w {
			t.Errorf("block %d: chained hash %d, want %d", i, got, w)
		}
	}
}

func TestChainIsNotSalted(t *testing.T) {
	h := NewHasher(Namespace{Salt: "tenant-a"}, 4)
	first, _ := h.Next([]Token{1, 2, 3, 4})
	second, local := h.Next([]Token{5, 6, 7, 8})
	if want := Chain(first, local); second != want {
		t.Errorf("chained hash %d, want %d", second, want)
	}
}

func TestHasherResumes(t *testing.T) {
	h := NewHasher(Namespace{}, 4)
	h.Resume(4945711292740353085)
	if got, _ := h.Next([]Token{9, 10, 11, 12}); got != 12583592247330656132 {
		t.Errorf("resumed hash %d", got)
	}
}

func TestHasherDoesNotAllocate(t *testing.T) {
	h := NewHasher(Namespace{Salt: "x"}, 16)
	block := make([]Token, 16)
	h.Next(block)
	if n := testing.AllocsPerRun(100, func() { h.Next(block) }); n != 0 {
		t.Errorf("%v allocations per block, want 0", n)
	}
}

func TestPagesRound(t *testing.T) {
	for _, tc := range []struct{ tokens, page, floor, ceil int }{
		{0, 16, 0, 0}, {1, 16, 0, 1}, {16, 16, 1, 1}, {17, 16, 1, 2}, {5, 1, 5, 5},
	} {
		if f, c := FloorPages(tc.tokens, tc.page), CeilPages(tc.tokens, tc.page); f != tc.floor || c != tc.ceil {
			t.Errorf("%d tokens in pages of %d: floor %d ceil %d", tc.tokens, tc.page, f, c)
		}
	}
}

// TestMediaFollowTheTokens: the hashes of a block's media are hashed after its
// tokens, sorted, as Dynamo does, and a block without any is hashed as before.
func TestMediaFollowTheTokens(t *testing.T) {
	tokens := []Token{1, 2, 3, 4}
	var bytes []byte
	for _, x := range tokens {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(x))
	}
	for _, m := range []uint64{5, 1 << 63} {
		bytes = binary.LittleEndian.AppendUint64(bytes, m)
	}
	want := LocalHash(xxh3.HashSeed(bytes, 1337))
	media := []uint64{1 << 63, 5}
	if got, _ := HashLocalMedia(tokens, media, 1337, nil); got != want {
		t.Errorf("hash %d, want %d", got, want)
	}
	h := NewHasher(Namespace{}, 4)
	if hash, local := h.NextMedia(tokens, []uint64{1 << 63, 5}); local != want || hash != BlockHash(want) {
		t.Errorf("first block %d, %d, want %d", hash, local, want)
	}
	if hash, local := h.NextMedia(tokens, nil); local != 14643705804678351452 || hash != Chain(BlockHash(want), local) {
		t.Errorf("second block %d, %d", hash, local)
	}
}
