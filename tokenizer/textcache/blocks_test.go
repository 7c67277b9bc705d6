package textcache

import (
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// The hashes of a turn's blocks are computed in its new parts alone, and again where a part comes after others.
func TestHashesOfTurns(t *testing.T) {
	tok := trainedTokenizer(t)
	c, e := New(tok, 8<<20), tok.NewEncoder()
	turn := func(text string, ns kv.Namespace) (links uint64) {
		t.Helper()
		before := c.links.Load()
		b := Blocks{BlockTokens: 16, Namespace: ns}
		tokens, err := c.EncodeBlocks(nil, e, "a", text, tokenizer.Options{}, &b)
		if err != nil || len(b.Hashes) != len(tokens)/16 {
			t.Fatal(len(b.Hashes), len(tokens), err)
		}
		return c.links.Load() - before
	}
	text := opticks.Text()[:100_000]
	parts := turn(text, kv.Namespace{})
	if parts < 40 {
		t.Fatalf("%d parts, want about 50", parts)
	}
	if n := turn(text, kv.Namespace{}); n != 0 {
		t.Errorf("the same text again: the blocks of %d parts are hashed", n)
	}
	if n := turn(text+opticks.Text()[100_000:104_000], kv.Namespace{}); n < 2 || n > 4 {
		t.Errorf("4,000 bytes more: the blocks of %d parts are hashed, want 2 or 3", n)
	}
	if n := turn(text, kv.Namespace{LoRA: "x"}); n != parts {
		t.Errorf("another namespace: the blocks of %d parts are hashed, want %d", n, parts)
	}
	if n := turn("<|turn|>"+strings.Repeat("Something else. ", 40)+"<|end|>"+text, kv.Namespace{}); n < parts {
		t.Errorf("after another text: the blocks of %d parts are hashed, want %d", n, parts)
	}
	for i := range 2 * maxLinks {
		turn(text, kv.Namespace{Salt: strings.Repeat("s", i+1)})
	}
	held := 0
	for i := range c.shards {
		sum := 0
		for _, p := range c.shards[i].parts {
			sum += p.size()
			held = max(held, len(p.links))
		}
		if sum != c.shards[i].bytes {
			t.Errorf("%d bytes are counted, want %d", c.shards[i].bytes, sum)
		}
	}
	if held != maxLinks {
		t.Errorf("a part has %d links, want %d", held, maxLinks)
	}
	if n := turn(text, kv.Namespace{Salt: strings.Repeat("s", 2*maxLinks)}); n != 0 {
		t.Errorf("the last namespace again: the blocks of %d parts are hashed", n)
	}
}
