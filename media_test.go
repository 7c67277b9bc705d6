package coppice_test

import (
	"context"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// TestMedia: a request's placeholders match the cache only if they stand for the same content.
func TestMedia(t *testing.T) {
	m, err := model.Open(nano)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	backend, err := cpu.Open(m, cpu.Config{KVTokens: 4096, PageTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	node, err := coppice.Open(coppice.Config{Backend: backend, Tokenizer: m.Tokenizer()})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	tokens := make([]kv.Token, 41)
	for i := range tokens {
		tokens[i] = 7
	}
	for i, tc := range []struct {
		image uint64
		want  int
	}{{1, 0}, {1, 40}, {2, 8}, {2, 40}, {1, 40}} {
		req := coppice.Request{Tokens: tokens, Media: []kv.Media{{At: 8, Tokens: 30, Hash: tc.image}}, MaxTokens: 1, IgnoreEOS: true}
		for piece, err := range node.Generate(context.Background(), req) {
			if err != nil {
				t.Fatal(err)
			}
			if e := piece.Ending; e != nil && e.CachedTokens != tc.want {
				t.Errorf("request %d, image %d: %d tokens cached, want %d", i, tc.image, e.CachedTokens, tc.want)
			}
		}
	}
}
