package trainer

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

func start(t *testing.T, corpus string) *trainer {
	t.Helper()
	tr, err := newTrainer(corpus)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// trainNaive returns the first merges that Train makes of corpus, as many as merges says. For
// each it counts all pairs again.
func trainNaive(t *testing.T, merges int, corpus string) [][2]kv.Token {
	first := start(t, corpus)
	words := first.words
	var out [][2]kv.Token
	for n := range merges {
		counts := map[pair]int{}
		for _, w := range words {
			for i := range len(w.ids) - 1 {
				counts[pairOf(w.ids[i], w.ids[i+1])] += w.count
			}
		}
		best := counted{}
		for p, n := range counts {
			if c := (counted{n, p}); best.count == 0 || c.Before(best) {
				best = c
			}
		}
		if best.count == 0 {
			return out
		}
		left, right := kv.Token(best.pair>>32), kv.Token(best.pair&0xFFFFFFFF)
		for i := range words {
			for k := 0; k+1 < len(words[i].ids); k++ {
				if words[i].ids[k] == left && words[i].ids[k+1] == right {
					words[i].ids = slices.Replace(words[i].ids, k, k+2, kv.Token(256+n))
				}
			}
		}
		out = append(out, [2]kv.Token{left, right})
	}
	return out
}

func TestTrainMatchesNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1730))
	parts, mixed := []string{"a", "e", "th", "'s", " ", "  ", "\n", "12", "é", "中", "🙂", "<|eot_id|>", "the Light", "\xff", "\xc3", "\xed\xa0\x80"}, ""
	for range 2000 {
		mixed += parts[rng.IntN(len(parts))]
	}
	corpora := []string{opticks.Text()[:6000], strings.Repeat("aaaa aaaaaaa aabaab ", 30), mixed}
	for _, corpus := range corpora {
		want := trainNaive(t, 150, corpus)
		tr := start(t, corpus)
		for tr.step() && len(tr.merges) < len(want) {
		}
		if !slices.Equal(tr.merges, want) {
			t.Errorf("%q...: merges differ from naive training", corpus[:20])
		}
	}
}

var update = flag.Bool("update", false, "rewrite the tokenizer.json files of tokenizer/testdata")

// TestTrainWritesTheSameFiles pins the files that the tests of package tokenizer read: one of English and enough of other
// scripts to have merges that would cross the splitters' boundaries, and a small one.
func TestTrainWritesTheSameFiles(t *testing.T) {
	other, err := os.ReadFile("../testdata/multilingual.txt")
	if err != nil {
		t.Fatal(err)
	}
	for path, tc := range map[string]struct {
		cfg    Config
		corpus string
	}{
		"../testdata/tokenizer.json": {Config{VocabSize: 1500, Special: []string{"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eot|>"}},
			opticks.Text()[:150_000] + strings.Repeat(string(other), 20)},
		"../testdata/small.json": {Config{VocabSize: 270, Special: []string{"<s>", "</s>"}}, strings.Repeat("the light in the glass ", 20)},
	} {
		got, err := Train(tc.cfg, tc.corpus)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("Train's output differs from %s; if that is intended, run with -update and regenerate golden.json", path)
		}
	}
}

func TestTrainedFile(t *testing.T) {
	corpus := opticks.Text()[:30_000]
	cfg := Config{VocabSize: 500, Special: []string{"<s>", "</s>"}}
	data, err := Train(cfg, corpus)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Train(cfg, corpus)
	if err != nil || !bytes.Equal(data, again) {
		t.Errorf("the second training differs (%v)", err)
	}
	tok, err := tokenfile.Parse(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != 500 {
		t.Errorf("vocab size %d, want 500", tok.VocabSize())
	}
	for i, name := range cfg.Special {
		if id, ok := tok.AddedToken(name); !ok || int(id) != 498+i {
			t.Errorf("%s is %d %v, want the last ids", name, id, ok)
		}
	}
	if got := tok.Encode(nil, "!~"); !slices.Equal(got, []kv.Token{0, 93}) {
		t.Errorf("bytes are numbered %v, want ! to be 0 and ~ 93", got)
	}
	if id, ok := tok.BOS(); ok {
		t.Errorf("BOS %d, though no special token is called %s", id, beginOfText)
	}
}

func TestTrainRefuses(t *testing.T) {
	for _, tc := range []struct {
		cfg    Config
		corpus string
		want   string
	}{
		{Config{}, "abc", "VocabSize 0"},
		{Config{VocabSize: 255}, "abc", "VocabSize 255"},
		{Config{VocabSize: 256, Special: []string{"<s>"}}, "abc", "VocabSize 256"},
		{Config{VocabSize: maxVocab + 1}, "abc", "VocabSize"},
		{Config{VocabSize: 300, Special: []string{"<s>", "<s>"}}, "abc", "twice"},
		{Config{VocabSize: 300, Special: []string{""}}, "abc", "empty"},
		{Config{VocabSize: 300, Special: []string{"\xff"}}, "abc", "UTF-8"},
		{Config{VocabSize: 259}, "abc", "yields 2 merges"},
		{Config{VocabSize: 257}, "", "yields 0 merges"},
		{Config{VocabSize: 258, Special: []string{"ab"}}, "abc", "ordinary"},
	} {
		if _, err := Train(tc.cfg, tc.corpus); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want one with %q", tc.cfg, err, tc.want)
		}
	}
	for _, cfg := range []Config{{VocabSize: 256}, {VocabSize: 257, Special: []string{"<s>"}}, {VocabSize: 258}} {
		if _, err := Train(cfg, "abc"); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	corpus := opticks.Text()[:150_000]
	for b.Loop() {
		if _, err := Train(Config{VocabSize: 1256}, corpus); err != nil {
			b.Fatal(err)
		}
	}
}
