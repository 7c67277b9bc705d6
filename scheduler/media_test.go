package scheduler

import (
	"errors"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// TestDifferentMediaDoNotMatch checks that placeholders match, in the cache and in flight, only if
// the media that they stand for are the same.
func TestDifferentMediaDoNotMatch(t *testing.T) {
	const at, patches = 10, 20
	image := func(hash uint64) []kv.Media { return []kv.Media{{At: at, Tokens: patches, Hash: hash}} }
	prompt := slices.Concat(seq(1, at), slices.Repeat([]kv.Token{90}, patches), seq(50, 10))
	for _, together := range []bool{false, true} { // false: one after another
		for _, tc := range []struct {
			media []kv.Media
			want  int // tokens from the cache, at pages of 4 and with tails
		}{
			{image(7), 39}, {image(8), at}, {nil, at},
			{[]kv.Media{{At: at + 2, Tokens: patches - 2, Hash: 7}}, at},
		} {
			b := newBed(t, Config{StepTokens: 16, ChunkTokens: 16, ShareTokens: 1}, 4, 64)
			add := func(id RequestID, media []kv.Media) {
				if err := b.s.Add(b.now, Request{ID: id, Prompt: prompt, Media: media, MaxTokens: 1}); err != nil {
					t.Fatal(err)
				}
			}
			add(1, image(7))
			if !together {
				b.run()
			}
			add(2, tc.media)
			got := b.run()[2]
			if got.Reason != Length || got.CachedTokens != tc.want {
				t.Errorf("together %v, media %v: %v, %d tokens of %d cached, want %d", together, tc.media, got.Err, got.CachedTokens, len(prompt), tc.want)
			}
			if err := b.s.Check(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestMediaAreChecked(t *testing.T) {
	b := newBed(t, Config{}, 4, 64)
	for _, media := range [][]kv.Media{
		{{At: -1, Tokens: 2}}, {{At: 0, Tokens: 0}}, {{At: 8, Tokens: 3}}, {{At: 0, Tokens: 4}, {At: 3, Tokens: 2}}, {{At: 5, Tokens: 1}, {At: 0, Tokens: 1}},
	} {
		var field *FieldError
		err := b.s.Add(b.now, Request{ID: 1, Prompt: seq(1, 10), Media: media})
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &field) || field.Field != "Media" {
			t.Errorf("%v: %v", media, err)
		}
	}
	if err := b.s.Add(b.now, Request{ID: 1, Prompt: seq(1, 10), Media: []kv.Media{{At: 0, Tokens: 4}, {At: 4, Tokens: 6}}}); err != nil {
		t.Error(err)
	}
}
