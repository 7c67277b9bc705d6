package textcache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// agent returns the text of an agent's conversation of about that many bytes: messages of 300 to 20,000
// bytes, of which each begins with a special token if marked is true.
func agent(bytes int, marked bool) string {
	var b strings.Builder
	source := opticks.Text()
	for i := 0; b.Len() < bytes; i++ {
		if marked {
			fmt.Fprintf(&b, "<|end|>\n<|turn|>%s\n", []string{"user", "assistant", "tool"}[i%3])
		}
		n := []int{300, 4000, 900, 20_000, 500}[i%5]
		at := i * 7919 % (len(source) - n)
		fmt.Fprintf(&b, "%d: %s", i, source[at:at+n])
	}
	return b.String()
}

// BenchmarkTurn measures a turn of 140,000 tokens of which 1,000 are new, whole and by a cache that has the
// turn before, and the new text alone.
func BenchmarkTurn(b *testing.B) {
	tok := trainedTokenizer(b)
	for _, marked := range []bool{true, false} {
		e := tok.NewEncoder()
		before := agent(626_000, marked)
		next := func(i int) string {
			return before + fmt.Sprintf("<|end|>\n<|turn|>user\n%d ", i) + opticks.Text()[i%1000:][:4000]
		}
		for _, name := range []string{"whole", "cached", "new", "whole+hashes", "cached+hashes"} {
			b.Run(fmt.Sprintf("marked=%v/%s", marked, name), func(b *testing.B) {
				c := New(tok, 64<<20)
				var whole *Cache
				hashes := Blocks{BlockTokens: 16}
				tokens, _ := c.EncodeBlocks(nil, e, "a", before, tokenizer.Options{}, &hashes)
				before, i := len(before), 0
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					text := next(i)
					i++
					b.StartTimer()
					switch name {
					case "whole":
						tokens, _ = e.EncodeWith(tokens[:0], text, tokenizer.Options{})
					case "cached":
						tokens, _ = c.Encode(tokens[:0], e, "a", text, tokenizer.Options{})
					case "new":
						tokens, _ = e.EncodeWith(tokens[:0], text[before:], tokenizer.Options{})
					case "whole+hashes", "cached+hashes":
						of := c
						if name == "whole+hashes" {
							of = whole
						}
						hashes.Locals, hashes.Hashes = hashes.Locals[:0], hashes.Hashes[:0]
						tokens, _ = of.EncodeBlocks(tokens[:0], e, "a", text, tokenizer.Options{}, &hashes)
					}
				}
				b.ReportMetric(float64(len(tokens)), "tokens")
			})
		}
	}
}

// BenchmarkHostile measures texts of which nothing is found, whole and with a cache that fills.
func BenchmarkHostile(b *testing.B) {
	tok := trainedTokenizer(b)
	e := tok.NewEncoder()
	for name, make := range hostile {
		for _, way := range []string{"whole", "cached"} {
			b.Run(name+"/"+way, func(b *testing.B) {
				c, i := New(tok, 4<<20), 0
				var tokens []kv.Token
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					text := make(i, 400_000)
					i++
					b.StartTimer()
					if way == "whole" {
						tokens, _ = e.EncodeWith(tokens[:0], text, tokenizer.Options{})
					} else {
						tokens, _ = c.Encode(tokens[:0], e, "a", text, tokenizer.Options{})
					}
				}
			})
		}
	}
}

// hostile makes texts that fill the cache, or have parts of odd sizes. i makes each text another one.
var hostile = map[string]func(i, bytes int) string{
	"numbers": func(i, bytes int) string {
		var b strings.Builder
		for j := 0; b.Len() < bytes; j++ {
			fmt.Fprintf(&b, "%d light %d, ", j*7919+i*104_729, i)
		}
		return b.String()[:bytes]
	},
	"words":    func(i, bytes int) string { return repeat(fmt.Sprintf("w%d light, ", i), bytes) },
	"tokens":   func(i, bytes int) string { return repeat(fmt.Sprintf("<|turn|>%d", i), bytes) },
	"short":    func(i, bytes int) string { return repeat(fmt.Sprintf("<|turn|>%d %0250d", i, i), bytes) },
	"brackets": func(i, bytes int) string { return repeat("<", bytes) + fmt.Sprint(i) },
	"begun":    func(i, bytes int) string { return repeat("<|tur", bytes) + fmt.Sprint(i) },
	"one word": func(i, bytes int) string { return repeat("light", bytes) + fmt.Sprint(i) },
	"spaces":   func(i, bytes int) string { return repeat(" ", bytes) + fmt.Sprint(i) },
	"ideograms": func(i, bytes int) string {
		return repeat("守燈塔", bytes) + fmt.Sprint(i)
	},
	"lines": func(i, bytes int) string { return repeat(fmt.Sprintf("\n%d\n\n", i), bytes) },
	"bytes": func(i, bytes int) string { return repeat(fmt.Sprintf("\xff\xc3%d", i), bytes) },
}

func repeat(s string, bytes int) string { return strings.Repeat(s, bytes/len(s)+1)[:bytes] }

// TestHostileTexts encodes texts that are made to fill the cache or to have odd parts: no token is encoded twice,
// and the bound holds. BenchmarkHostile has the times.
func TestHostileTexts(t *testing.T) {
	tok := trainedTokenizer(t)
	e := tok.NewEncoder()
	const limit = 256 << 10
	for name, make := range hostile {
		c := New(tok, limit)
		total := uint64(0)
		for i := range 8 {
			text := make(i, 60_000)
			want, err := e.EncodeWith(nil, text, tokenizer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Encode(nil, e, fmt.Sprint("tenant ", i%3), text, tokenizer.Options{})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s: %d tokens (%v), want %d", name, len(got), err, len(want))
			}
			total += uint64(len(want))
			s := c.Stats()
			if s.Bytes > limit || s.Parts > limit/(keptBytes+placeBytes) {
				t.Errorf("%s: %+v: more than %d bytes", name, s, limit)
			}
			if s.Encoded+s.Reused != total {
				t.Errorf("%s: %d tokens are encoded and %d reused, want %d together", name, s.Encoded, s.Reused, total)
			}
		}
		held := 0
		for i := range c.shards {
			for _, p := range c.shards[i].parts {
				held += cap(p.tokens)*4 + len(p.text) + len(p.owner) + placeBytes
			}
		}
		if held > limit {
			t.Errorf("%s: %d bytes are held, want at most %d", name, held, limit)
		}
	}
}
