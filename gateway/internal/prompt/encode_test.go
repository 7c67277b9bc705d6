package prompt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// pieces are parts of texts that may matter at a cut: spaces, letters and digits that form a word,
// combining marks, and parts of tokens. U+0338 forms one rune with a > before it.
var pieces = []string{
	"", "a", " ", "a ", " a", "\n", "a\n", "\u00a0", "_", "9", "'s", "\u0301", "\u0338", "\u0323\u0301e", "e\u0301", "\u1100", "<", "|", ">", "\u2581", "A\u0130\ufb01", "\t ", "\xff",
	"Hello world. ", "the rays of light,\n\n", "    x = 1;\n", "12345 ", "don't", "caf\u00e9", "cafe\u0301", "\u5b88\u706f\u5854", "\U0001f600",
	"\n<|im_end|>\n", "<|im_", "end|>", "<", "<<", "<s", "</s", "[INST", "[/", "\u0338", "\u2581\u2581", "  \t\n", "\xff\xfe", "a_", "_b",
}

// addedTokens returns the contents of the added tokens of tok.
func addedTokens(tok *tokenizer.Tokenizer) []string {
	all := tok.ControlTokens()
	for id := range kv.Token(tok.VocabSize()) {
		if content := tok.Text(id); content != "" {
			if _, ok := tok.AddedToken(content); ok {
				all = append(all, content)
			}
		}
	}
	return all
}

// cutTokens returns the added tokens of tok at which texts are cut, in order.
func cutTokens(tok *tokenizer.Tokenizer) []string {
	cuts := tok.NewCuts()
	all := slices.DeleteFunc(addedTokens(tok), func(content string) bool { return cuts.Next(content, 0) > 0 })
	slices.Sort(all)
	return all
}

// randomText mixes pieces, added tokens and runs of plain text.
func randomText(rng *rand.Rand, added []string) string {
	var b strings.Builder
	for range rng.IntN(40) {
		switch n := rng.IntN(10); {
		case n < 4 && len(added) > 0:
			b.WriteString(added[rng.IntN(len(added))])
		case n < 8:
			b.WriteString(pieces[rng.IntN(len(pieces))])
		default:
			at := rng.IntN(100_000)
			b.WriteString(opticks.Text()[at : at+rng.IntN(600)])
		}
	}
	return b.String()
}

// matches fails unless r encodes text as its tokenizer does.
func matches(t *testing.T, name string, r *Reader, text string) {
	t.Helper()
	tok := r.cfg.Tokenizer
	for _, whole := range []bool{false, true} {
		want := tok.Encode(nil, text)
		if whole {
			want = tok.EncodePrompt(nil, text)
		}
		e := encoding{Reader: r, most: r.cfg.MaxTokens}
		got := e.encode(nil, text, whole)
		e.end()
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q\nwith what is around it %v, gives %v,\nwant %v", name, text, whole, got, want)
		}
	}
}

// caches are the cache sizes to test: none, for few texts, for many.
var caches = []int{-1, 4 << 10, 64 << 20}

func TestSegmentsAreTheText(t *testing.T) {
	for _, f := range families(t) {
		added := addedTokens(f.tok)
		for _, bytes := range caches {
			r := testReader(t, Config{Tokenizer: f.tok, CacheBytes: bytes})
			rng := rand.New(rand.NewPCG(1, 2))
			for range 15 {
				text := randomText(rng, added)
				matches(t, f.name, r, text)
				matches(t, f.name, r, text+randomText(rng, added)) // the next turn
			}
			if s := r.Stats(); bytes > 1<<20 && s.Hits == 0 || s.Bytes > max(bytes, 0) {
				t.Errorf("%s: with %d bytes, %+v", f.name, bytes, s)
			}
		}
	}
}

// oddTokens are added to a tokenizer file: tokens at which text must not be cut, and one at
// which it may.
const oddTokens = `[
{"id":ID0,"content":"<|fine|>","special":true},
{"id":ID1,"content":"<|left|>","special":true,"lstrip":true},
{"id":ID2,"content":"<|right|>","special":true,"rstrip":true},
{"id":ID3,"content":"<|single|>","special":true,"single_word":true},
{"id":ID4,"content":"<|in|>","special":true},
{"id":ID5,"content":"<|in|>side","special":true},
{"id":ID6,"content":"x<|fi","special":false},
{"id":ID7,"content":"word","special":false},
{"id":ID8,"content":"==","special":false},
{"id":ID9,"content":"<|norm>","special":true,"normalized":true},
{"id":ID10,"content":"~~ ","special":true},
{"id":ID11,"content":"!!word","special":false,"single_word":true}
]`

// withAdded returns a family's tokenizer with further added tokens, given as JSON with ID0, ID1
// and so on.
func withAdded(t *testing.T, f family, added string) *tokenizer.Tokenizer {
	t.Helper()
	size := f.tok.VocabSize()
	for i := 20; i >= 0; i-- {
		added = strings.ReplaceAll(added, fmt.Sprintf("ID%d", i), fmt.Sprint(size+i))
	}
	file := map[string]json.RawMessage{}
	for name, value := range f.file {
		file[name] = value
	}
	var before, more []json.RawMessage
	json.Unmarshal(file["added_tokens"], &before)
	if err := json.Unmarshal([]byte(added), &more); err != nil {
		t.Fatal(err)
	}
	file["added_tokens"], _ = json.Marshal(append(before, more...))
	return parseFile(t, file)
}

func TestOddTokensAreNoCuts(t *testing.T) {
	for _, f := range families(t) {
		f.tok = withAdded(t, f, oddTokens)
		added := addedTokens(f.tok)
		r := testReader(t, Config{Tokenizer: f.tok, CacheBytes: 64 << 20})
		for content, want := range map[string]bool{
			"<|left|>": false, "<|single|>": false, "<|in|>": false, "word": false, "==": false, "x<|fi": false, "!!word": false,
			"<|in|>side": true, "<|right|>": true, "~~ ": true,
		} {
			if got := r.cuts.Next(content, 0) == 0; got != want {
				t.Errorf("%s: texts are cut at %q: %v", f.name, content, got)
			}
		}
		if r.cuts.Next("<|fine|>", 0) == 0 {
			t.Errorf("%s: texts are cut where another token may have begun", f.name)
		}
		rng := rand.New(rand.NewPCG(3, 4))
		for range 30 {
			matches(t, f.name, r, randomText(rng, added))
		}
	}
}

func FuzzSegments(f *testing.F) {
	f.Add("<s>user\n"+strings.Repeat("light ", 60)+"</s>\n<s>x", uint8(0))
	f.Add(strings.Repeat("a <|im_end|>\u0338", 40), uint8(3))
	var readers []*Reader
	var cuts [][]string
	for _, of := range families(f) {
		r, err := New(Config{Tokenizer: of.tok, CacheBytes: 64 << 10})
		if err != nil {
			f.Fatal(err)
		}
		readers, cuts = append(readers, r), append(cuts, cutTokens(of.tok))
	}
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		r := readers[int(which)%len(readers)]
		var b strings.Builder
		for i, part := range strings.SplitAfter(text, ">") { // seeds: the fuzzer won't find the tokens itself
			b.WriteString(part)
			if names := cuts[int(which)%len(readers)]; len(names) > 0 && i%2 == 0 {
				b.WriteString(names[(len(part)+i)%len(names)])
			}
			b.WriteString(strings.Repeat(part, min(len(part), 300/(len(part)+1))))
		}
		matches(t, "a family", r, b.String())
	})
}

// TestFamiliesAreCut: the tokens that end turns are cuts; otherwise the cache would not help.
func TestFamiliesAreCut(t *testing.T) {
	want := map[string][]string{
		"llama3": {"<|begin_of_text|>", "<|eot_id|>"}, "qwen2": {"<think>", "<|endoftext|>", "<|im_end|>"},
		"gpt2": {"<|endoftext|>"}, "tekken": {"</s>", "<s>", "<unk>", "[/INST]", "[INST]"}, "mistral": {"</s>", "<s>", "<unk>", "[/INST]", "[INST]"},
		"mistral flags": {"</s>", "<right>", "<s>", "<think>", "<unk>", "[/INST]", "[INST]"},
	}
	for _, f := range families(t) {
		got := cutTokens(f.tok)
		if names, ok := want[f.name]; ok && !slices.Equal(got, names) {
			t.Errorf("%s is cut at %q, want %q", f.name, got, names)
		}
		delete(want, f.name)
	}
	if len(want) > 0 {
		t.Errorf("families that are not there: %q", want)
	}
}

// TestCacheKeepsToItsLimit: the cache respects its limit and evicts the least recently used
// text.
func TestCacheKeepsToItsLimit(t *testing.T) {
	c := newTextCache(10_000)
	text := func(i int) string { return fmt.Sprintf("%0500d", i) }
	put := func(i int) { c.put(c.hash(text(i)), text(i), []kv.Token{1, 2, 3}) }
	has := func(i int) bool { _, ok := c.get(c.hash(text(i)), text(i)); return ok }
	for i := range 100 {
		if put(i); !has(0) {
			t.Fatalf("after %d texts the one that is asked for all the time is gone", i)
		}
	}
	s := c.stats()
	if fits := 10_000 / (500 + 12 + placeBytes); s.Texts != fits || s.Bytes != fits*(500+12+placeBytes) {
		t.Errorf("%+v, want %d texts", s, fits)
	}
	if !has(99) || has(1) {
		t.Error("the oldest is kept, or the newest is not")
	}
	large := strings.Repeat("x", 5001)
	if c.put(c.hash(large), large, nil); c.stats() != (Stats{s.Texts, s.Bytes, 101, 1}) {
		t.Errorf("a text of over half the cache is kept: %+v", c.stats())
	}
	if c.put(7, "a", []kv.Token{1}); c.stats().Texts != s.Texts+1 && c.stats().Bytes > 10_000 {
		t.Errorf("%+v", c.stats())
	}
	if _, ok := c.get(7, "b"); ok {
		t.Error("a text is found by its hash alone")
	}
}

func TestReadersShareTheCache(t *testing.T) {
	tok := testTokenizer(t)
	r := testReader(t, Config{Tokenizer: tok, CacheBytes: 64 << 10})
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i%2), 2))
			added := addedTokens(tok)
			for range 100 {
				matches(t, "trained", r, randomText(rng, added))
			}
		})
	}
	wait.Wait()
}
