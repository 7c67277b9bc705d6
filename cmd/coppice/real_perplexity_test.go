package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
)

// realWeights lists the types of weights that llama-quantize makes of SmolLM2 and Coppice reads, the
// shipped one first. Rows of 576 have no K types: there llama-quantize takes Q8_0, Q5_0 and so on.
var realWeights = []string{"Q4_1", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_NL"}

// perplexityBound is the largest relative difference from llama.cpp's perplexity. The two programs round activations
// differently, by which log-probabilities differ by 0.07 (root mean square). The mean over 48 windows, 12,288 tokens,
// then differs by 0.06 % by chance alone, and that over 12 windows by 0.13 %.
const perplexityBound = 0.002

// perplexityWindow is the number of tokens of a window, of which the second half counts.
const perplexityWindow = 512

// TestRealPerplexity checks that the perplexity of SmolLM2 on Newton's Opticks is within 0.2 % of
// llama-perplexity's: by default with the shipped weights and KV in f16, with -real for each type of
// weights and each type of KV.
func TestRealPerplexity(t *testing.T) {
	program(t, "llama-perplexity")
	weights, types, windows := realWeights[:1], []kv.DType{kv.F16}, 12
	if *realAll {
		weights, types, windows = realWeights, cpu.KVTypes(), *realWindows
	}
	smol.path(t)
	kept := openResults(t, filepath.Join(resultsDir(t), "perplexity.jsonl"))
	for _, w := range weights {
		for _, d := range types {
			t.Run(w+"/"+d.String(), func(t *testing.T) {
				file := smol.as(t, w)
				key := fmt.Sprintf("%s %s kv=%v windows=%d ", smol.name, w, d, windows)
				want := keep(kept, key+"llama.cpp "+peerVersion(t, "llama-perplexity"), func() float64 { return llamaPerplexity(t, file, d, windows) })
				got := keep(kept, key+"coppice "+codeKey(t), func() float64 { return perplexity(t, file, d, windows) })
				t.Logf("%.4f, llama.cpp %.4f (%+.3f %%), %d windows", got, want, 100*(got/want-1), windows)
				if off := got/want - 1; math.Abs(off) > perplexityBound {
					t.Errorf("perplexity %.4f, llama.cpp's %.4f: %+.3f %%, want at most %.1f %%", got, want, 100*off, 100*perplexityBound)
				}
			})
		}
	}
}

func llamaPerplexity(t *testing.T, file string, d kv.DType, windows int) float64 {
	t.Helper()
	text := filepath.Join(t.TempDir(), "opticks.txt")
	if err := os.WriteFile(text, []byte(opticks.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-m", file, "-f", text, "-c", strconv.Itoa(perplexityWindow), "-b", strconv.Itoa(perplexityWindow), "-t", "1", "--no-warmup", "--chunks", strconv.Itoa(windows)}
	said, err := exec.Command(program(t, "llama-perplexity"), append(args, llamaKV(d)...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("llama-perplexity: %v: %.2000s", err, said)
	}
	// The figure after the last window: the last line of the output, with the same figure, may be lost.
	found := regexp.MustCompile(fmt.Sprintf(`\[%d\]([0-9.]+)`, windows)).FindSubmatch(said)
	if found == nil {
		t.Fatalf("llama-perplexity says nothing of %s: %.2000s", file, said)
	}
	ppl, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return ppl
}

func perplexity(t *testing.T, file string, d kv.DType, windows int) float64 {
	t.Helper()
	c := computeKV(t, file, perplexityWindow, d)
	tokens := c.model.Tokenizer().Encode(nil, opticks.Text())
	sum, n := 0.0, 0
	for at := range windows {
		// The first token has no prediction: the window's positions are 1 to 511.
		logprobs := c.run(0, tokens[at*perplexityWindow:(at+1)*perplexityWindow], true).Prompt
		for _, l := range logprobs[perplexityWindow/2:] {
			sum, n = sum-float64(l), n+1
		}
	}
	return math.Exp(sum / float64(n))
}
