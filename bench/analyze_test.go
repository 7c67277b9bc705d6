package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

func sequencesOf(requests ...[]kv.Token) *Sequences {
	t := &Trace{}
	for _, r := range requests {
		t.add(r)
	}
	return t.Sequences()
}

func analyzed(t *testing.T, s *Sequences, cfg AnalyzeConfig) *Analysis {
	t.Helper()
	a, err := Analyze(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// run returns a block of 16 equal tokens for each letter.
func run(letters string) (tokens []kv.Token) {
	for _, letter := range letters {
		for range 16 {
			tokens = append(tokens, kv.Token(letter))
		}
	}
	return tokens
}

func TestAnalyzeByHand(t *testing.T) {
	// Blocks abcd twice, abx, and q followed by part of a block.
	a := analyzed(t, sequencesOf(run("abcd"), run("abx"), run("q")[:15], append(run("abcd"), 1, 2, 3)), AnalyzeConfig{})
	want := PrefixTree{
		BlockTokens: 16, Blocks: 11, Nodes: 5, HitTokens: 16 * (2 + 4), HitRate: 96.0 / (64 + 48 + 15 + 67),
		CoreNodes: 4, CoreDepth: 16 * (4 + 2 + 0 + 4) / 4.0, CoreDepthMax: 64, CoreShare: 160.0 / 194, CoreLeaves: 1, CoreWidth: 1,
	}
	if a.Tree != want {
		t.Errorf("%+v, want %+v", a.Tree, want)
	}
	lengths := Lengths{Mean: 194.0 / 4, P50: 48, P90: 67, P99: 67, Max: 67, Histogram: []int{0, 0, 0, 0, 1, 0, 1, 2}}
	if !reflect.DeepEqual(a.ISL, lengths) || a.OSL != nil || a.PromptTokens != 194 {
		t.Errorf("%+v", a.ISL)
	}
	if a.Sizes[0] != a.Tree || a.Sizes[1].BlockTokens != 32 || a.Sizes[1].Nodes != 2 || a.Sizes[1].HitTokens != 32*3 || len(a.Sizes) != 6 {
		t.Errorf("%+v", a.Sizes)
	}
}

// naivePrefixTree computes the tree of the prompts' whole blocks from a map whose keys are the
// texts of prefixes.
func naivePrefixTree(s *Sequences, blockTokens int) (p PrefixTree) {
	key := func(q sequence, blocks int) string {
		var b bytes.Buffer
		for _, token := range q.tokens[:blocks*blockTokens] {
			b.WriteByte(byte(token))
		}
		return b.String()
	}
	visits := map[string]int{}
	prompt := 0
	for _, q := range s.requests {
		prompt += q.prompt
		for n := 1; n <= q.prompt/blockTokens; n++ {
			if visits[key(q, n)]++; visits[key(q, n)] > 1 {
				p.HitTokens += blockTokens
			}
			p.Blocks++
		}
	}
	width := map[int]int{}
	for k, n := range visits {
		if n < 2 {
			continue
		}
		p.CoreNodes++
		width[len(k)]++
		p.CoreDepthMax = max(p.CoreDepthMax, len(k))
		leaf := true
		for other, m := range visits {
			leaf = leaf && !(m >= 2 && len(other) == len(k)+blockTokens && strings.HasPrefix(other, k))
		}
		if leaf {
			p.CoreLeaves++
		}
	}
	for _, n := range width {
		p.CoreWidth = max(p.CoreWidth, n)
	}
	deep := 0
	for _, q := range s.requests {
		n := 0
		for n < q.prompt/blockTokens && visits[key(q, n+1)] >= 2 {
			n++
		}
		deep += n * blockTokens
	}
	p.BlockTokens, p.Nodes = blockTokens, len(visits)
	p.HitRate, p.CoreShare = float64(p.HitTokens)/float64(prompt), float64(deep)/float64(prompt)
	p.CoreDepth = float64(deep) / float64(len(s.requests))
	return p
}

func TestAnalyzeIsTheNaiveTree(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var requests [][]kv.Token
		for range 1 + rng.IntN(40) {
			var r []kv.Token
			if len(requests) > 0 {
				base := requests[rng.IntN(len(requests))]
				r = slices.Clone(base[:rng.IntN(len(base)+1)])
			}
			for range rng.IntN(12) {
				r = append(r, kv.Token(rng.IntN(3)))
			}
			requests = append(requests, append(r, 7))
		}
		s := sequencesOf(requests...)
		size := 1 + rng.IntN(4)
		if a, want := analyzed(t, s, AnalyzeConfig{BlockTokens: size}), naivePrefixTree(s, size); a.Tree != want {
			t.Fatalf("seed %d: %+v, want %+v", seed, a.Tree, want)
		}
	}
}

func TestBuckets(t *testing.T) {
	mix := func(shares map[string]int) *Sequences {
		var requests [][]kv.Token
		for _, prefix := range slices.Sorted(func(yield func(string) bool) {
			for k := range shares {
				if !yield(k) {
					return
				}
			}
		}) {
			for i := range shares[prefix] {
				requests = append(requests, append(run(prefix), run(string(rune(1000+i)))...))
			}
		}
		return sequencesOf(requests...)
	}
	for _, tc := range []struct {
		name     string
		s        *Sequences
		stem     int
		branches int
		standOut bool
		routers  int
		workers  int
	}{
		{"three of like size", mix(map[string]int{"a": 30, "b": 40, "c": 30}), 0, 3, true, 3, 0},
		{"below a stem", mix(map[string]int{"sta": 30, "stb": 40, "stc": 30}), 32, 3, true, 3, 0},
		{"some others beside them", mix(map[string]int{"a": 47, "b": 45, "c": 4, "d": 4}), 0, 4, true, 2, 0},
		{"one dwarfs the other", mix(map[string]int{"a": 90, "b": 10}), 0, 2, false, 1, 0},
		{"one", mix(map[string]int{"a": 100}), 16, 100, false, 1, 0},
		{"fewer workers than kinds", mix(map[string]int{"a": 30, "b": 40, "c": 30}), 0, 3, true, 2, 2},
	} {
		a := analyzed(t, tc.s, AnalyzeConfig{Workers: tc.workers})
		if b := a.Buckets; b.StemTokens != tc.stem || b.Branches != tc.branches || b.StandOut != tc.standOut || a.Advice.Routers != tc.routers {
			t.Errorf("%s: %+v, %d routers", tc.name, b, a.Advice.Routers)
		}
	}
}

// TestAdviceForGeneratedTraces checks the advice for each kind of generated trace.
func TestAdviceForGeneratedTraces(t *testing.T) {
	for _, tc := range []struct {
		kind    TraceKind
		score   float64
		routers int
		reason  string
	}{
		{TraceChat, 2, 1, "overlap weights unchanged"},
		{TraceFewShot, 2, 8, "8 routers"},
		{TraceTree, 2, 1, "overlap weights unchanged"},
		{TraceUnique, 0.2, 1, "overlap weights ×0.1: at best 0.0 %"},
	} {
		trace, err := GenerateTrace(TraceConfig{Kind: tc.kind, Requests: 600, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		a := analyzed(t, trace.Sequences(), AnalyzeConfig{})
		if d := a.Advice; d.Score != tc.score || d.Routers != tc.routers || !strings.Contains(strings.Join(d.Reasons, "\n"), tc.reason) {
			t.Errorf("%v: %+v; %+v, %+v", tc.kind, d, a.Tree, a.Buckets)
		}
	}
}

// TestPrefixBlocksNameTheirSize checks that --prefix-blocks in the advice counts blocks
// of the analysed size and says so, since the advised block size may differ.
func TestPrefixBlocksNameTheirSize(t *testing.T) {
	var requests [][]kv.Token
	for i := range 40 {
		kind := strings.Repeat(string(rune('a'+i%4)), 600)
		requests = append(requests, run(strings.Repeat("s", 10)+kind))
	}
	const other = "blocks of 512 tokens give another number"
	for block, want := range map[int]string{16: "--prefix-blocks 11, of 16 tokens each", 512: "--prefix-blocks 1, of 512 tokens each"} {
		a := analyzed(t, sequencesOf(requests...), AnalyzeConfig{BlockTokens: block})
		reasons := strings.Join(a.Advice.Reasons, "\n")
		if a.Advice.BlockTokens != 512 || a.Advice.Routers != 4 || !strings.Contains(reasons, want) || strings.Contains(reasons, other) != (block != 512) {
			t.Errorf("%+v", a.Advice)
		}
	}
}

func TestUsageWeight(t *testing.T) {
	s := sequencesOf(run("abcd"), run("efgh"))
	for pool, want := range map[int]float64{0: 1, 10: 1, 63: 1, 64: 0.5, 127: 0.5, 128: 0.25, 1 << 40: 0.25} {
		if got := analyzed(t, s, AnalyzeConfig{PoolTokens: pool}).Advice.Usage; got != want {
			t.Errorf("a pool of %d tokens of 128: usage %v, want %v", pool, got, want)
		}
	}
}

func TestAnalyzeMooncake(t *testing.T) {
	s, err := OpenSequences(mooncakeSample)
	if err != nil {
		t.Fatal(err)
	}
	a := analyzed(t, s, AnalyzeConfig{})
	blocks, served := sampleBlocks(t)
	hits := 512 * blockLRU(blocks, 1<<30)
	if a.PromptTokens != served || a.Tree.BlockTokens != 512 || a.Tree.HitTokens != hits || a.Requests != 300 || a.OSL == nil || a.Advice.ExpectedOutput != a.OSL.P50 {
		t.Errorf("%+v, want %d tokens, %d hit", a, served, hits)
	}
	if a.Tree.HitRate < a.Sizes[1].HitRate || a.Sizes[1].BlockTokens != 1024 || math.Abs(a.Tree.HitRate-float64(hits)/float64(served)) > 1e-12 {
		t.Errorf("%+v", a.Sizes)
	}
	if _, err := Analyze(s, AnalyzeConfig{BlockTokens: 16}); err == nil || !strings.Contains(err.Error(), "multiple of 512") {
		t.Errorf("blocks of 16: %v", err)
	}
	var table, object strings.Builder
	if err := errors.Join(a.WriteTable(&table), WriteJSON(&object, a)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"outputs (OSL)", "*512", "advice:", "smaller ones can't be judged"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in %s", want, table.String())
		}
	}
	var back Analysis
	if err := json.Unmarshal([]byte(object.String()), &back); err != nil || !reflect.DeepEqual(&back, a) {
		t.Errorf("%v: %s", err, object.String())
	}
}

func TestBadSequences(t *testing.T) {
	const line = `{"timestamp": 5, "input_length": 3, "output_length": 1, "hash_ids": [1]}` + "\n"
	for text, want := range map[string]error{"": ErrTrace, "PF": ErrTrace, "PFXT": ErrTrace, "hello": ErrTrace, "{}": ErrMooncake, line + "{": ErrMooncake,
		line + strings.Replace(line, "5", "4", 1): ErrMooncake, "{" + strings.Repeat(" ", mooncakeMaxLine): ErrMooncake} {
		if _, err := ReadSequences(strings.NewReader(text)); !errors.Is(err, want) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	var trace bytes.Buffer
	if _, err := (&Trace{}).WriteTo(&trace); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSequences(&trace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Analyze(s, AnalyzeConfig{PoolTokens: -1}); err == nil || !strings.Contains(err.Error(), "no requests") || !strings.Contains(err.Error(), "PoolTokens is -1") {
		t.Error(err)
	}
}
