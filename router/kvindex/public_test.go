package kvindex

import (
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
)

// TestPublicTokens: the hashes of a prompt with a public prefix equal those of a worker's cache
// events, wherever the prefix ends, and do not depend on the salt before that.
func TestPublicTokens(t *testing.T) {
	const page, block, length = 2, 4, 24
	tokens := upTo(length)
	ns := kv.Namespace{LoRA: "l", Salt: "tenant"}
	for public := range length + 6 {
		cache, err := radixcache.New(radixcache.Config{PageTokens: page, BlockTokens: block, Events: true})
		if err != nil {
			t.Fatal(err)
		}
		pages := make([]kv.PageID, length/page)
		for i := range pages {
			pages[i] = kv.PageID(i)
		}
		cache.Insert(radixcache.Key{Namespace: ns, PublicTokens: public, Tokens: tokens}, pages, nil)
		var stored []kv.BlockHash
		for _, ev := range cache.TakeEvents(nil) {
			for _, b := range ev.Blocks {
				stored = append(stored, b.Hash)
			}
		}
		var h TokensWithHashes
		h.Reset(tokens, ns)
		h.SetPublic(public)
		if got := h.Hashes(block); !slices.Equal(got, stored) {
			t.Errorf("%d public tokens: hashes %x, the worker stored %x", public, got, stored)
		}
		var open TokensWithHashes
		open.Reset(tokens, kv.Namespace{LoRA: "l"})
		for i, hash := range open.Hashes(block) {
			if same := hash == h.Hashes(block)[i]; same != ((i+1)*block <= public) {
				t.Errorf("%d public tokens: block %d is shared: %v", public, i, same)
			}
		}
		h.SetPublic(-1)
		var own TokensWithHashes
		own.Reset(tokens, ns)
		if !slices.Equal(h.Hashes(block), own.Hashes(block)) {
			t.Error("SetPublic(-1) does not take it back")
		}
	}
}
