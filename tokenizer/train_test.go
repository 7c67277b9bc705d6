package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// trainNaive returns the first merges that Train makes of corpus, as many as merges says. For
// each it counts all pairs again.
func trainNaive(merges int, corpus string) [][2]kv.Token {
	start := newTrainer(corpus)
	words := start.words
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
			if c := (counted{n, p}); best.count == 0 || c.before(best) {
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
	corpora := []string{opticks.Text()[:6000], strings.Repeat("aaaa aaaaaaa aabaab ", 30), randomText(rng, 2000, true)}
	for _, corpus := range corpora {
		want := trainNaive(150, corpus)
		tr := newTrainer(corpus)
		for tr.step() && len(tr.merges) < len(want) {
		}
		if !slices.Equal(tr.merges, want) {
			t.Errorf("%q...: merges differ from naive training", corpus[:20])
		}
	}
}

func TestTrainedFile(t *testing.T) {
	corpus := opticks.Text()[:30_000]
	cfg := TrainConfig{VocabSize: 500, Special: []string{"<s>", "</s>"}}
	data, err := Train(cfg, corpus)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Train(cfg, corpus)
	if err != nil || !bytes.Equal(data, again) {
		t.Errorf("the second training differs (%v)", err)
	}
	tok, err := parse(data, nil)
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
		cfg    TrainConfig
		corpus string
		want   string
	}{
		{TrainConfig{}, "abc", "VocabSize 0"},
		{TrainConfig{VocabSize: 255}, "abc", "VocabSize 255"},
		{TrainConfig{VocabSize: 256, Special: []string{"<s>"}}, "abc", "VocabSize 256"},
		{TrainConfig{VocabSize: MaxTrainVocab + 1}, "abc", "VocabSize"},
		{TrainConfig{VocabSize: 300, Special: []string{"<s>", "<s>"}}, "abc", "twice"},
		{TrainConfig{VocabSize: 300, Special: []string{""}}, "abc", "empty"},
		{TrainConfig{VocabSize: 300, Special: []string{"\xff"}}, "abc", "UTF-8"},
		{TrainConfig{VocabSize: 259}, "abc", "yields 2 merges"},
		{TrainConfig{VocabSize: 257}, "", "yields 0 merges"},
		{TrainConfig{VocabSize: 258, Special: []string{"ab"}}, "abc", "ordinary"},
	} {
		if _, err := Train(tc.cfg, tc.corpus); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want one with %q", tc.cfg, err, tc.want)
		}
	}
	for _, cfg := range []TrainConfig{{VocabSize: 256}, {VocabSize: 257, Special: []string{"<s>"}}, {VocabSize: 258}} {
		if _, err := Train(cfg, "abc"); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	corpus := opticks.Text()[:150_000]
	for b.Loop() {
		if _, err := Train(TrainConfig{VocabSize: 1256}, corpus); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		trained(b)
	}
}
