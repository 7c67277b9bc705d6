package textcache

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/kvindex"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
	"github.com/coppice-llm/coppice/tokenizer/trainer"
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
	all := slices.DeleteFunc(addedTokens(tok), func(content string) bool { return cuts.Next(content, 0, len(content), nil) > 0 })
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

// matches fails unless c encodes text as its tokenizer does, with and without what is around a prompt.
func matches(t *testing.T, name string, c *Cache, e *tokenizer.Encoder, owner, text string, o tokenizer.Options) {
	t.Helper()
	for _, o.Prompt = range []bool{false, true} {
		want, wrong := e.EncodeWith([]kv.Token{7}, text, o)
		got, err := c.Encode([]kv.Token{7}, e, owner, text, o)
		if wrong != nil {
			if err == nil || err.Error() != wrong.Error() {
				t.Fatalf("%s: %q\nwith %+v fails with %v, want %v", name, text, o, err, wrong)
			}
			continue
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: %q\nwith %+v, gives %v (%v),\nwant %v", name, text, o, got, err, want)
		}
		hashes(t, name, c, e, owner, text, o, want[1:])
	}
}

// hashes fails unless the hashes of text's blocks are those of its tokens.
func hashes(t *testing.T, name string, c *Cache, e *tokenizer.Encoder, owner, text string, o tokenizer.Options, tokens []kv.Token) {
	t.Helper()
	for i := range 3 {
		b := Blocks{BlockTokens: []int{1, 16, 5}[i], PublicTokens: []int{0, 40, 7}[i], Namespace: kv.Namespace{Salt: []string{"", "a", "b"}[i]}}
		if _, err := c.EncodeBlocks(nil, e, owner, text, o, &b); err != nil {
			t.Fatal(err)
		}
		var want kvindex.TokensWithHashes
		want.Reset(tokens, b.Namespace)
		want.SetPublic(b.PublicTokens)
		if !slices.Equal(b.Locals, want.Locals(b.BlockTokens)) || !slices.Equal(b.Hashes, want.Hashes(b.BlockTokens)) {
			t.Fatalf("%s: %q\nwith %+v has the hashes %v,\nwant %v", name, text, o, b.Hashes, want.Hashes(b.BlockTokens))
		}
	}
}

// caches are the cache sizes to test: none, for few texts, for many.
var caches = []int{0, 4 << 10, 64 << 20}

func TestSegmentsAreTheText(t *testing.T) {
	for _, f := range families(t) {
		added, e := addedTokens(f.tok), f.tok.NewEncoder()
		for _, bytes := range caches {
			c := New(f.tok, bytes)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range 15 {
				text := randomText(rng, added)
				o := tokenizer.Options{MaxTokens: i % 3 * 400}
				if i%2 == 1 {
					o.Plain = plainOffsets(rng, text, added)
				}
				matches(t, f.name, c, e, "a", text, o)
				matches(t, f.name, c, e, "a", text+randomText(rng, added), o) // the next turn
			}
			if s := c.Stats(); bytes > 1<<20 && s.Reused == 0 || s.Bytes > bytes {
				t.Errorf("%s: with %d bytes, %+v", f.name, bytes, s)
			}
		}
	}
}

// plainOffsets returns some of the offsets at which text has one of the added tokens.
func plainOffsets(rng *rand.Rand, text string, added []string) (plain []int) {
	for at := range len(text) {
		for _, name := range added {
			if strings.HasPrefix(text[at:], name) && rng.IntN(3) == 0 {
				plain = append(plain, at)
				break
			}
		}
	}
	return plain
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
		added, cuts := addedTokens(f.tok), f.tok.NewCuts()
		for content, want := range map[string]bool{
			"<|left|>": false, "<|single|>": false, "<|in|>": false, "word": false, "==": false, "x<|fi": false, "!!word": false,
			"<|in|>side": true, "<|right|>": true, "~~ ": true, "<|fine|>": false, // another token may have begun there
		} {
			if got := cuts.Next(content, 0, len(content), nil) == 0; got != want {
				t.Errorf("%s: texts are cut at %q: %v", f.name, content, got)
			}
		}
		c, e := New(f.tok, 64<<20), f.tok.NewEncoder()
		rng := rand.New(rand.NewPCG(3, 4))
		for range 30 {
			text := randomText(rng, added)
			matches(t, f.name, c, e, "a", text, tokenizer.Options{})
			matches(t, f.name, c, e, "a", text, tokenizer.Options{Plain: plainOffsets(rng, text, added)})
		}
	}
}

// FuzzTurns encodes a conversation that grows, or changes in the middle, by caches that the turns before
// have filled.
func FuzzTurns(f *testing.F) {
	f.Add("<s>user\n"+strings.Repeat("light ", 60)+"</s>\n<s>x", uint8(0), uint64(1))
	f.Add(strings.Repeat("a <|im_end|>\u0338", 40), uint8(3), uint64(2))
	all := families(f)
	encoders, small, large, added := make([]*tokenizer.Encoder, len(all)), make([]*Cache, len(all)), make([]*Cache, len(all)), make([][]string, len(all))
	for i, of := range all {
		encoders[i], small[i], large[i], added[i] = of.tok.NewEncoder(), New(of.tok, 16<<10), New(of.tok, 1<<20), addedTokens(of.tok)
	}
	f.Fuzz(func(t *testing.T, text string, which uint8, seed uint64) {
		i := int(which) % len(all)
		rng := rand.New(rand.NewPCG(seed, 3))
		for range 3 {
			at := rng.IntN(len(text) + 1)
			if rng.IntN(2) == 0 {
				at = len(text)
			}
			text = text[:at] + strings.Repeat(randomText(rng, added[i]), 1+rng.IntN(3)) + text[at:]
			o := tokenizer.Options{MaxTokens: rng.IntN(3) * rng.IntN(2000)}
			if rng.IntN(3) == 0 {
				o.Plain = plainOffsets(rng, text, added[i])
			}
			for _, c := range []*Cache{small[i], large[i]} {
				matches(t, all[i].name, c, encoders[i], "a", text, o)
				if s := c.Stats(); s.Bytes > 1<<20 || c == small[i] && s.Bytes > 16<<10 {
					t.Fatalf("%+v", s)
				}
			}
		}
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

// TestCacheKeepsToItsLimit: the cache respects its limit and evicts the least recently used part.
func TestCacheKeepsToItsLimit(t *testing.T) {
	c := Cache{store: newStore(10_000)}
	keyOf := func(i int) key { return key{hash: uint64(i), text: fmt.Sprintf("%0500d", i)} }
	put := func(i int) { c.put(keyOf(i), []kv.Token{1, 2, 3}, 0) }
	has := func(i int) bool { k := keyOf(i); return c.get(&k) != nil }
	for i := range 100 {
		if put(i); !has(0) {
			t.Fatalf("after %d parts the one that is asked for all the time is gone", i)
		}
	}
	s := c.Stats()
	if fits := 10_000 / (500 + 12 + placeBytes); s.Parts != fits || s.Bytes != fits*(500+12+placeBytes) {
		t.Errorf("%+v, want %d parts", s, fits)
	}
	if !has(99) || has(1) {
		t.Error("the oldest is kept, or the newest is not")
	}
	large := key{hash: 200, text: strings.Repeat("x", 5001)}
	if c.put(large, nil, 0); c.Stats() != s {
		t.Errorf("a part of over half the cache is kept: %+v", c.Stats())
	}
}

// Only a part that is the same in all respects is found.
func TestPartsAreCompared(t *testing.T) {
	c := Cache{store: newStore(10_000)}
	k := key{hash: 7, owner: "a", text: "some text", plain: []int{1}}
	c.put(k, []kv.Token{1}, 5)
	if found := c.get(&k); found == nil || found.steps != 5 || !slices.Equal(found.tokens, []kv.Token{1}) {
		t.Fatalf("%+v", found)
	}
	for i, other := range []key{
		{8, "a", "some text", false, []int{1}}, {7, "b", "some text", false, []int{1}}, {7, "a", "some texT", false, []int{1}},
		{7, "a", "some text", true, []int{1}}, {7, "a", "some text", false, []int{2}}, {7, "a", "some text", false, nil},
	} {
		if c.get(&other) != nil {
			t.Errorf("%d is found: %+v", i, other)
		}
	}
}

func TestEncodersShareTheCache(t *testing.T) {
	tok := families(t)[0].tok
	c := New(tok, 64<<10)
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			rng, e := rand.New(rand.NewPCG(uint64(i%2), 2)), tok.NewEncoder()
			added := addedTokens(tok)
			for range 100 {
				matches(t, "llama3", c, e, "a", randomText(rng, added), tokenizer.Options{})
			}
		})
	}
	wait.Wait()
}

// trained is a tokenizer like Llama 3's, small enough to be trained for a test.
var trained = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	data, err := trainer.Train(trainer.Config{VocabSize: 4000, Special: []string{"<|turn|>", "<|end|>"}}, opticks.Text())
	if err != nil {
		return nil, err
	}
	return tokenfile.Parse(data, nil)
})

func trainedTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := trained()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// family is a tokenizer.json of a common pipeline.
type family struct {
	name string
	tok  *tokenizer.Tokenizer
	file map[string]json.RawMessage
}

// families returns those of tokenizer/testdata/families.json.
func families(t testing.TB) []family {
	t.Helper()
	data, err := os.ReadFile("../testdata/families.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Families []struct {
			Name, Base string
			File       map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	var out []family
	files := map[string]map[string]json.RawMessage{}
	for _, f := range all.Families {
		files[f.Name] = f.File
		if f.Base != "" {
			var model, own map[string]json.RawMessage
			json.Unmarshal(files[f.Base]["model"], &model)
			json.Unmarshal(f.File["model"], &own)
			own["vocab"], own["merges"] = model["vocab"], model["merges"]
			f.File["model"], _ = json.Marshal(own)
		}
		out = append(out, family{f.Name, parseFile(t, f.File), f.File})
	}
	if len(out) < 20 {
		t.Fatalf("%d families, want 20 or more", len(out))
	}
	return out
}

func parseFile(t testing.TB, file map[string]json.RawMessage) *tokenizer.Tokenizer {
	t.Helper()
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenfile.Parse(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
