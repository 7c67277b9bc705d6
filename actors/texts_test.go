package actors

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// Each turn of a conversation encodes its new text, and the last part of the turn before. No other tenant
// or namespace finds it, and the tokens are those of the whole text.
func TestTurnsReuseTexts(t *testing.T) {
	s := start(t, Config{}, cpu.Config{})
	reused := func() uint64 { return s.texts.Stats().Reused }
	turn := func(bytes int, tenant, salt string) []kv.Token {
		t.Helper()
		text := opticks.Text()[:bytes]
		tokens, err := s.Tokenize(t.Context(), Text{Tenant: tenant, Namespace: kv.Namespace{Salt: salt}, Text: text})
		if want := nano.Tokenizer().EncodePrompt(nil, text); err != nil || !slices.Equal(tokens, want) {
			t.Fatalf("%d bytes: %d tokens (%v), want %d", bytes, len(tokens), err, len(want))
		}
		return tokens
	}
	before := turn(20_000, "a", "")
	for _, other := range [][2]string{{"b", ""}, {"a", "x"}, {"", "a"}} {
		if turn(20_000, other[0], other[1]); reused() != 0 {
			t.Fatalf("tenant %q with salt %q finds %d tokens", other[0], other[1], reused())
		}
	}
	for bytes := 30_000; bytes <= 50_000; bytes += 10_000 {
		at := reused()
		tokens := turn(bytes, "a", "")
		if n := int(reused() - at); n < len(before)*8/10 || n >= len(tokens) {
			t.Errorf("of %d tokens, %d more than before, %d are reused", len(tokens), len(tokens)-len(before), n)
		}
		before = tokens
	}
	// A request finds what Tokenize has left, and the figures say so.
	at := reused()
	text := opticks.Text()[:5000]
	if _, _, e := drain(t, open(t, s, Request{Tenant: "a", Prompt: text, MaxTokens: 1})); e.Err != nil {
		t.Fatal(e.Err)
	}
	if st, err := s.Stats(t.Context()); err != nil || st.Texts.Reused == at || st.Texts.Bytes == 0 {
		t.Errorf("%+v, %v: want more than %d reused tokens", st.Texts, err, at)
	}
}

// Without the cache nothing is reused, and a worker that dies leaves what it encoded to the others.
func TestTextsOutliveWorkers(t *testing.T) {
	off := start(t, Config{TextBytes: -1}, cpu.Config{})
	on := start(t, Config{Tokenizers: 1}, cpu.Config{})
	text := Text{Text: strings.Repeat("What is light? ", 1000)}
	for _, s := range []*System{off, on} {
		for range 2 {
			if _, err := s.Tokenize(t.Context(), text); err != nil {
				t.Fatal(err)
			}
			s.workers[0].tell(&poison{})
		}
	}
	if n := off.texts.Stats().Reused; n != 0 {
		t.Errorf("%d tokens are reused without a cache", n)
	}
	if s := on.texts.Stats(); s.Reused == 0 || s.Encoded == 0 {
		t.Errorf("%+v", s)
	}
}
