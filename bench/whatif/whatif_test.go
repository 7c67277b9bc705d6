package whatif

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/decisions"
)

const blockTokens = 16

// truth is the speed of the workers in these tests.
var truth = Speed{Base: 0.004, Token: 0.0002, Running: 0.001, Decode: 0.005, DecodeRunning: 0.0005}

// tape makes a recording.
type tape struct {
	e    *decisions.Encoder
	text []byte
	next kv.BlockHash
	n    int
}

func newTape() *tape {
	k := &tape{e: decisions.NewEncoder([16]byte{1})}
	k.text = k.e.AppendHead(nil, decisions.Head{BlockTokens: blockTokens, Policy: "latency", Weights: router.DefaultWeights(), Profile: router.Profile{Step: truth.Decode, Token: truth.Token}, Predict: true})
	for w := range 2 {
		k.text, _ = k.e.Worker(k.text, rank(w), func(kv.Rank) decisions.Worker {
			return decisions.Worker{Name: fmt.Sprint("w", w), ID: rank(w).Worker, MaxRequests: 64}
		})
	}
	return k
}

func rank(w int) kv.Rank { return kv.Rank{Worker: kv.WorkerID(w + 1)} }

// blocks returns n new blocks.
func (k *tape) blocks(n int) (all []kv.BlockHash) {
	for range n {
		k.next++
		all = append(all, k.next)
	}
	return all
}

// ask records a request for a prompt at a time at worker w, which had a part of it cached and was computing nothing, beside this
// many running requests.
func (k *tape) ask(at time.Duration, w int, prompt []kv.BlockHash, cachedBlocks, running, output int) {
	tokens, cached := blockTokens*len(prompt)+1, blockTokens*cachedBlocks
	d := decisions.Decision{
		At: at, Attempt: 1, PromptTokens: tokens, ExpectedOutput: output, Streamed: true, Reason: "cost", Chosen: w,
		Candidates: []decisions.Candidate{{Worker: w, Overlap: []int{cachedBlocks}, Requests: running}},
		Result:     decisions.Result{Outcome: decisions.Answered, Status: 200, Cached: &cached, OutputTokens: output},
	}
	d.TTFT = truth.prompt(tokens-cached, running)
	d.Total = d.TTFT + truth.decode(output-1, running)
	k.text = k.e.AppendDecision(k.text, &d, prompt, 0)
	k.n++
}

func (k *tape) read(t *testing.T) *decisions.Recording {
	t.Helper()
	rec, err := decisions.Read(bytes.NewReader(k.text))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestFit: the speed of workers without noise is found.
func TestFit(t *testing.T) {
	k, rng := newTape(), rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		n := 1 + rng.IntN(100)
		k.ask(time.Duration(i)*time.Second, i%2, k.blocks(n), rng.IntN(n), rng.IntN(6), 2+rng.IntN(30))
	}
	rec := k.read(t)
	s, err := fit(rec, answered(rec))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]float64{"base": {s.Base, truth.Base}, "token": {s.Token, truth.Token}, "running": {s.Running, truth.Running},
		"decode": {s.Decode, truth.Decode}, "decode running": {s.DecodeRunning, truth.DecodeRunning}} {
		if math.Abs(pair[0]-pair[1]) > 0.01*pair[1] {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
}

// TestRegret: of a choice that leaves a cached prefix aside, the regret is the time of its tokens, and of one that waits for another
// prompt without need, that wait. The best choices have none.
func TestRegret(t *testing.T) {
	k, at := newTape(), time.Duration(0)
	ask := func(w int, prompt []kv.BlockHash, cached int) {
		k.ask(at, w, prompt, cached, 0, 1)
	}
	for i := range 20 { // to learn the speed from
		at += time.Second
		ask(i%2, k.blocks(10+i), 0)
	}
	prefix := k.blocks(50)
	at += time.Second
	ask(0, prefix, 0)
	at += time.Second
	ask(1, prefix, 0) // request 21: it should have gone to worker 0
	at += time.Second
	ask(1, prefix, 50)
	at += time.Second
	ask(0, k.blocks(100), 0)
	ask(0, k.blocks(100), 0) // request 24, at the same time: it waits for the one before
	known := k.blocks(30)
	at += 10 * time.Second
	ask(0, known, 30) // from before the recording
	at += time.Second
	ask(1, known, 0) // request 26
	rec := k.read(t)
	table, err := Score(t.Context(), Config{Policies: []router.Policy{router.CostLatency, router.CostRoundRobin}}, rec)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Model.Regrets) != k.n || table.Model.Requests != k.n || table.Model.Others != 0 {
		t.Fatalf("%+v", table.Model)
	}
	wait := 1e3 * (truth.Base + truth.Token*1601)
	for i, r := range table.Model.Regrets {
		want := map[int]float64{21: 1e3 * truth.Token * 800, 24: wait, 26: 1e3 * truth.Token * 480}[i]
		if math.Abs(r.Regret-want) > 0.01*max(want, 1) || r.Worker != rec.Workers[rec.Decisions[i].Chosen].Name {
			t.Errorf("the regret of choice %d is %.3f ms, want %.3f: %+v", i, r.Regret, want, r)
		}
	}
	if r := table.Policies[0]; r.Policy != "latency" || r.RegretMean > 0.2 || r.TTFTMean >= table.Model.TTFTMean {
		t.Errorf("latency: %+v", r)
	}
	if r := table.Policies[1]; r.RegretMean <= table.Policies[0].RegretMean {
		t.Errorf("round-robin: a mean regret of %v", r.RegretMean)
	}
	var text strings.Builder
	if err := bench.WriteTable(&text, table); err != nil || !strings.Contains(text.String(), "recorded choices") || !strings.Contains(text.String(), "round-robin") {
		t.Errorf("%v %s", err, text.String())
	}
	if rows, _ := table.Each().Rows(); len(rows) != 1+k.n || len(rows[1]) != 2+3*3 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestWeights: weights change the scores of policies that use them.
func TestWeights(t *testing.T) {
	k, rng := newTape(), rand.New(rand.NewPCG(3, 4))
	prefixes := [][]kv.BlockHash{k.blocks(60), k.blocks(60), k.blocks(60)}
	for i := range 100 {
		k.ask(time.Duration(i)*150*time.Millisecond, i%2, slices.Concat(prefixes[rng.IntN(3)], k.blocks(5)), 0, 0, 10)
	}
	rec := k.read(t)
	var means []float64
	for _, factor := range []float64{1, 0} { // with 0, all workers cost nothing
		w := rec.Head.Weights
		w.TTFT, w.ITL, w.Backlog = factor*w.TTFT, factor*w.ITL, factor*w.Backlog
		table, err := Score(t.Context(), Config{Policies: []router.Policy{router.CostLatency}, Weights: w}, rec)
		if err != nil {
			t.Fatal(err)
		}
		means = append(means, table.Policies[0].TTFTMean)
	}
	if means[0] >= means[1] {
		t.Errorf("mean TTFT is %v, and %v without weights", means[0], means[1])
	}
}

// TestScoreRefuses a recording from which no speed can be learnt.
func TestScoreRefuses(t *testing.T) {
	k := newTape()
	for i := range minSamples - 1 {
		k.ask(time.Duration(i)*time.Second, 0, k.blocks(i+1), 0, 0, 2)
	}
	if _, err := Score(t.Context(), Config{}, k.read(t)); err == nil || !strings.Contains(err.Error(), "7 of 7 recorded answers are streams") {
		t.Error(err)
	}
	k.ask(time.Minute, 0, k.blocks(9), 0, 0, 2)
	if table, err := Score(t.Context(), Config{}, k.read(t)); err != nil || len(table.Policies) != len(router.Policies()) {
		t.Errorf("with one more: %+v, %v", table, err)
	}
}

// TestCache compares the cache with a list.
func TestCache(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	c, list := newCache(10), []decisions.Hash{}
	known := map[decisions.Hash]time.Duration{}
	for i := range 2000 {
		var chain []decisions.Hash
		for n := range 1 + rng.IntN(6) {
			chain = append(chain, decisions.Hash(1+rng.IntN(3)+3*n))
		}
		now := time.Duration(i)
		want := 0
		for want < len(chain) && slices.Contains(list, chain[want]) && known[chain[want]] <= now-5 {
			want++
		}
		if got := c.found(chain, now-5); got != want {
			t.Fatalf("round %d: %v has %d blocks, want %d of %v", i, chain, got, want, list)
		}
		c.use(chain, now)
		for k := len(chain) - 1; k >= 0; k-- {
			at := slices.Index(list, chain[k])
			if at < 0 {
				known[chain[k]] = now
			} else {
				list = slices.Delete(list, at, at+1)
			}
			list = slices.Insert(list, 0, chain[k])
		}
		list = list[:min(len(list), 10)]
	}
}
