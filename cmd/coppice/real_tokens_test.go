package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
)

// realTokens is the number of tokens after each prompt that are compared.
const realTokens = 64

// Bounds of TestRealTokens. Rounding activations to eight bits changes a log-probability by some 0.05 (root mean square),
// in Coppice as in llama.cpp. So the log-probabilities of two programs differ by some 0.07, and the gaps between the two
// best tokens by some 0.1.
const (
	farApart   = 0.5   // gap in log-probability above which the best token should be the same: five times 0.1
	equalShare = 0.995 // of the best tokens with such a gap
	mostNoise  = 0.1   // root mean square difference of log-probabilities
)

// scored holds realTokens tokens after a prompt and how a program scores them.
type scored struct {
	Tokens   []kv.Token `json:"tokens,omitempty"`
	At       []int      `json:"at,omitempty"` // the ascending positions in Tokens that are scored; nil: all
	Logprobs []float64  `json:"logprobs"`
	Best     []kv.Token `json:"best"` // the most probable token at each position
	Gaps     []float64  `json:"gaps"` // by how much its log-probability exceeds that of the second
}

// pair is a pair of types that TestRealTokens compares: of weights and of KV.
type pair struct {
	model   realModel
	weights string
	kvType  kv.DType
	prompts int
}

func (p pair) String() string { return p.model.name + "/" + p.weights + "/" + p.kvType.String() }

// key begins the keys of results for the prompt.
func (p pair) key(prompt realPrompt) string {
	return fmt.Sprintf("%s prompt=%s ", p, hashPrompts([]realPrompt{prompt}))
}

// realPairs lists what -real compares: all prompts with the shipped weights of SmolLM2, fewer with its other types
// and with the larger model.
func realPairs() (all []pair) {
	for _, w := range realWeights {
		all = append(all, pair{smol, w, kv.F16, 50})
	}
	all[0].prompts = 500
	for _, d := range []kv.DType{kv.F32, kv.BF16, kv.Q8_0} {
		all = append(all, pair{smol, smol.weights, d, 50})
	}
	return append(all, pair{qwen, qwen.weights, kv.F16, 50}, pair{qwen, qwen.weights, kv.Q8_0, 50})
}

// agreement sums up how Coppice's scores compare with a peer's.
type agreement struct {
	tokens, far, equal int
	squares            float64
	worst              float64
}

// add compares ours, which scores all positions, with a peer's scores.
func (a *agreement) add(ours, peer scored) {
	for n, l := range peer.Logprobs {
		i := n
		if peer.At != nil {
			i = peer.At[n]
		}
		off := ours.Logprobs[i] - l
		a.tokens, a.squares, a.worst = a.tokens+1, a.squares+off*off, max(a.worst, math.Abs(off))
		if peer.Gaps[n] > farApart {
			a.far++
			if ours.Best[i] == peer.Best[n] {
				a.equal++
			}
		}
	}
}

func (a *agreement) noise() float64 { return math.Sqrt(a.squares / float64(a.tokens)) }
func (a *agreement) share() float64 { return float64(a.equal) / float64(a.far) }

// faults returns what exceeds the bounds.
func (a *agreement) faults() (all []string) {
	if a.tokens == 0 || a.far < a.tokens/4 {
		all = append(all, fmt.Sprintf("%d tokens, the two best far apart at %d: too few to compare", a.tokens, a.far))
	}
	if a.share() < equalShare {
		all = append(all, fmt.Sprintf("%d of %d best tokens are equal, want %.1f %%", a.equal, a.far, 100*equalShare))
	}
	if !(a.noise() <= mostNoise) {
		all = append(all, fmt.Sprintf("log-probabilities differ by %.4f (root mean square), want at most %.2f", a.noise(), mostNoise))
	}
	return all
}

func (a *agreement) String() string {
	return fmt.Sprintf("%d tokens: of %d best tokens by more than %.1f, %d are equal (%.2f %%); log-probabilities differ by %.4f (root mean square), at most %.3f",
		a.tokens, a.far, farApart, a.equal, 100*a.share(), a.noise(), a.worst)
}

// scorer scores tokens after prompts by local.Open.
type scorer struct {
	*local.Model
	t *testing.T
}

func newScorer(t *testing.T, file string, d kv.DType) *scorer {
	t.Helper()
	m, err := local.Open(file, local.Options{Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
		b, err := cpu.Open(m, cpu.Config{KVTokens: 4096, KVType: d})
		if err != nil {
			return nil, err // not b: a nil pointer in an interface is not nil
		}
		return b, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &scorer{m, t}
}

func (s *scorer) encode(text string) []kv.Token { return s.Tokenizer().EncodePrompt(nil, text) }

// score scores tokens after the prompt, all in one request: it computes them as a prompt.
func (s *scorer) score(prompt, tokens []kv.Token) scored {
	s.t.Helper()
	all := append(append([]kv.Token(nil), prompt...), tokens...)
	var got scored
	for p, err := range s.Generate(context.Background(), coppice.Request{Tokens: all, MaxTokens: 1, IgnoreEOS: true, PromptLogprobs: true, PromptTop: 2}) {
		if err != nil {
			s.t.Fatal(err)
		}
		for i := len(prompt); i < len(p.PromptLogprobs); i++ {
			top := p.PromptTop[i]
			got.Logprobs = append(got.Logprobs, float64(p.PromptLogprobs[i]))
			got.Best = append(got.Best, top[0].Token)
			got.Gaps = append(got.Gaps, float64(top[0].Logprob-top[1].Logprob))
		}
	}
	if len(got.Logprobs) != len(tokens) {
		s.t.Fatalf("%d log-probabilities of %d tokens", len(got.Logprobs), len(tokens))
	}
	return got
}

// continued returns llama.cpp's greedy continuation of the prompt, with its scores. The server gives no scores of tokens that
// end within a character.
func (l *llama) continued(prompt []kv.Token) scored {
	l.Helper()
	var c struct {
		continued
		Tokens []kv.Token
	}
	l.ask("/completion", map[string]any{"prompt": prompt, "n_predict": realTokens, "temperature": 0, "n_probs": 2, "ignore_eos": true, "cache_prompt": false, "return_tokens": true}, &c)
	if len(c.Tokens) != realTokens || len(c.Probs) < realTokens/4 {
		l.Fatalf("llama.cpp gave %d tokens and %d scores", len(c.Tokens), len(c.Probs))
	}
	ids := make([]kv.Token, len(c.Probs))
	for i, p := range c.Probs {
		ids[i] = p.ID
	}
	s := scored{Tokens: c.Tokens}
	for i, at := range places(ids, c.Tokens) {
		if p := c.Probs[i]; at >= 0 {
			s.At = append(s.At, at)
			s.Logprobs = append(s.Logprobs, rounded(p.Logprob))
			s.Best = append(s.Best, p.Top[0].ID)
			s.Gaps = append(s.Gaps, rounded(p.Top[0].Logprob-p.Top[1].Logprob))
		}
	}
	return s
}

// places returns for each of some the only place that it can have in all, of which some are a part in the same order; -1 if
// several are possible. The first possible places and the last ones bound all others.
func places(some, all []kv.Token) []int {
	first, last := make([]int, len(some)), len(all)
	at := 0
	for i, id := range some {
		for at < len(all) && all[at] != id {
			at++
		}
		first[i] = at
		at++
	}
	for i, id := range slices.Backward(some) {
		for last--; last >= 0 && all[last] != id; last-- {
		}
		if last != first[i] {
			first[i] = -1
		}
	}
	return first
}

// TestRealPlaces checks places on tokens that come several times.
func TestRealPlaces(t *testing.T) {
	for _, tc := range []struct {
		some, all []kv.Token
		want      []int
	}{
		{[]kv.Token{1, 2, 3}, []kv.Token{1, 2, 3}, []int{0, 1, 2}},
		{[]kv.Token{1, 3}, []kv.Token{1, 2, 3}, []int{0, 2}},
		{[]kv.Token{1, 2, 3}, []kv.Token{1, 2, 2, 3}, []int{0, -1, 3}},
		{[]kv.Token{2, 2, 3}, []kv.Token{2, 2, 2, 3}, []int{-1, -1, 3}},
	} {
		if got := places(tc.some, tc.all); !slices.Equal(got, tc.want) {
			t.Errorf("places(%v, %v) is %v, want %v", tc.some, tc.all, got, tc.want)
		}
	}
}

func rounded(v float64) float64 { return math.Round(v*1e5) / 1e5 }

// TestRealTokens compares the 64 tokens after each prompt with other programs: how they score them, and which token
// they would choose. All programs score the tokens that llama.cpp has chosen. By default it takes their answers to 12
// prompts from testdata/real; with -real it asks the programs themselves, for all pairs of types.
func TestRealTokens(t *testing.T) {
	prompts := makeRealPrompts(t)
	if !*realAll {
		compareRecorded(t, prompts)
		return
	}
	for _, p := range realPairs() {
		t.Run(p.String(), func(t *testing.T) {
			n := min(p.prompts, len(prompts))
			if *realPrompts > 0 {
				n = min(n, *realPrompts)
			}
			comparePair(t, p, prompts[:n])
		})
	}
}

func comparePair(t *testing.T, p pair, prompts []realPrompt) {
	t.Helper()
	file, version := p.model.as(t, p.weights), peerVersion(t, "llama-server")
	kept := openResults(t, filepath.Join(resultsDir(t), "tokens.jsonl"))
	var l *llama // started for the first prompt without an answer
	var tr *transformers
	ours := newScorer(t, file, p.kvType)
	var against, exact agreement
	for _, prompt := range prompts {
		tokens, key := ours.encode(prompt.text), p.key(prompt)
		peer := keep(kept, key+"llama.cpp "+version, func() scored {
			if l == nil {
				l = startLlama(t, file, append(llamaKV(p.kvType), "-c", "4096")...)
			}
			return l.continued(tokens)
		})
		own := keep(kept, key+"coppice "+codeKey(t), func() scored { return ours.score(tokens, peer.Tokens) })
		against.add(own, peer)
		if *realPython != "" && p.kvType == kv.F16 {
			exact.add(own, keep(kept, key+"transformers of "+*realPython, func() scored {
				if tr == nil {
					tr = startTransformers(t, file)
				}
				return tr.score(tokens, peer.Tokens)
			}))
		}
	}
	t.Logf("llama.cpp, %d prompts, %v", len(prompts), &against)
	for _, fault := range against.faults() {
		t.Errorf("llama.cpp: %s", fault)
	}
	if exact.tokens > 0 {
		t.Logf("transformers, %d prompts, %v", len(prompts), &exact)
		for _, fault := range exact.faults() {
			t.Errorf("transformers: %s", fault)
		}
	}
}

// recorded holds a program's answers to the first prompts.
type recorded struct {
	Program, Version, Date string
	Weights                string
	KV                     kv.DType
	Prompts                string // their hash
	Answers                []scored
}

const (
	recordedFile = "testdata/real/%s.json"
	realRecorded = 12 // prompts
)

func compareRecorded(t *testing.T, prompts []realPrompt) {
	t.Helper()
	file := smol.path(t)
	var ours *scorer
	var all []recorded
	for _, name := range []string{"llama.cpp", "transformers"} {
		data, err := os.ReadFile(fmt.Sprintf(recordedFile, name))
		if errors.Is(err, fs.ErrNotExist) && len(all) > 0 {
			t.Logf("no answers of %s are recorded", name)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		var r recorded
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		if hash := hashPrompts(prompts[:len(r.Answers)]); r.Prompts != hash || len(r.Answers) == 0 {
			t.Fatalf("%s: %d answers to prompts %s, want some to %s; -real-record writes them again", name, len(r.Answers), r.Prompts, hash)
		}
		all = append(all, r)
	}
	ours = newScorer(t, file, all[0].KV)
	sums := make([]agreement, len(all))
	for i := range all[0].Answers {
		tokens := all[0].Answers[i].Tokens
		own := ours.score(ours.encode(prompts[i].text), tokens)
		for j := range all {
			if i < len(all[j].Answers) {
				sums[j].add(own, all[j].Answers[i])
			}
		}
		if i == 0 {
			plantScores(t, own, all[0].Answers[i])
		}
	}
	for j, r := range all {
		t.Logf("%s %s of %s: %v", r.Program, r.Version, r.Date, &sums[j])
		for _, fault := range sums[j].faults() {
			t.Errorf("%s: %s", r.Program, fault)
		}
	}
}

// plantScores checks that the bounds find scores of the tokens one position off, as a wrong position gives them.
func plantScores(t *testing.T, own, peer scored) {
	t.Helper()
	shifted := scored{Logprobs: slices.Concat(own.Logprobs[1:], own.Logprobs[:1]), Best: slices.Concat(own.Best[1:], own.Best[:1])}
	var a agreement
	a.add(shifted, peer)
	if got := a.faults(); len(got) < 2 {
		t.Errorf("scores one position off have the faults %q, want unequal tokens and noise", got)
	}
}
