package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cpu"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/internal/opticks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/scheduler"
)

// draftKinds are options of requests that act on tokens, on their scores or on the end of an output.
// TestDrafts and TestRealDrafts compare requests of all kinds with drafts and without.
var draftKinds = []struct {
	name string
	set  func(r *coppice.Request, at int)
}{
	{"plain", func(*coppice.Request, int) {}},
	{"schema", func(r *coppice.Request, _ int) {
		r.Format = coppice.Format{Language: jsonschema.Schema, Text: `{"type":"object","properties":{"title":{"type":"string","maxLength":12},"count":{"type":"integer"},"kind":{"enum":["particle","wave"]}},` +
			`"required":["title","count","kind"],"additionalProperties":false}`}
	}},
	{"stop strings", func(r *coppice.Request, _ int) { r.StopStrings, r.MinTokens = []string{"e t", "s,", "00"}, 5 }},
	{"penalties", func(r *coppice.Request, _ int) {
		r.Sampling.RepetitionPenalty, r.Sampling.PresencePenalty, r.Sampling.FrequencyPenalty = 1.05, 0.1, 0.1
	}},
	{"samples", func(r *coppice.Request, _ int) { r.Samples = 3 }},
	{"scores", func(r *coppice.Request, _ int) { r.Sampling.Logprobs, r.Sampling.TopLogprobs = true, 5 }},
	{"least length", func(r *coppice.Request, _ int) {
		r.IgnoreEOS, r.MinTokens, r.StopTokens = false, 9, r.Tokens[len(r.Tokens)-8:]
	}},
	{"allowed tokens", func(r *coppice.Request, _ int) { r.AllowedTokens = distinct(r.Tokens) }},
	{"bias", func(r *coppice.Request, at int) {
		for i, t := range distinct(r.Tokens) {
			r.Sampling.Bias = append(r.Sampling.Bias, engine.TokenBias{Token: t, Bias: []float32{1, -1, float32(math.Inf(-1)), 0.5}[(i+at)%4]})
		}
	}},
	{"expression", func(r *coppice.Request, _ int) {
		r.Format = coppice.Format{Language: grammar.RE2{}, Text: `(the [a-z ]{1,12}(of light|is white)[.] )+`}
	}},
}

// distinct returns at most 40 of the tokens, each once.
func distinct(tokens []kv.Token) []kv.Token {
	sorted := slices.Compact(slices.Sorted(slices.Values(tokens)))
	return sorted[:min(len(sorted), 40)]
}

// draftTwin is a request, the same one with drafts, and the text of an output without them. draftTwins
// makes them.
type draftTwin struct {
	kind    string
	without coppice.Request
	with    coppice.Request
	guess   string // the kind of Prediction
	want    coppice.Result
}

// draftTwins are pairs of requests, and counts of their comparison.
type draftTwins struct {
	all                                            []draftTwin
	outputs, tokens, drafted, confirmed, preempted int
	faults                                         int // requests that differ
	likely, likelyConfirmed                        int // tokens of requests with right guesses at them, and those confirmed
	sources                                        [scheduler.DraftSources]uint64
}

func (d *draftTwins) String() string {
	return fmt.Sprintf("%d outputs of %d tokens, %d preempted; %d guesses, %d confirmed, by source %v; with a right prediction %d of %d tokens",
		d.outputs, d.tokens, d.preempted, d.drafted, d.confirmed, d.sources, d.likelyConfirmed, d.likely)
}

// add appends twins that continue the prompt: number at decides their kind, temperature, seed and guesses.
func (d *draftTwins) add(at int, prompt []kv.Token, most int) {
	kind := draftKinds[at%len(draftKinds)]
	r := coppice.Request{Tokens: prompt, MaxTokens: most, IgnoreEOS: true, Digest: true, Timeline: true, Speculate: scheduler.SpeculateOff}
	round := at / len(draftKinds)
	switch (at + round) % 3 {
	case 1:
		r.Sampling = engine.SamplingParams{Temperature: 0.7, TopK: 40, TopP: 0.95, Seed: uint64(at)}
	case 2:
		r.Sampling = engine.SamplingParams{Temperature: 1, Seed: uint64(at)}
	}
	kind.set(&r, at)
	t := draftTwin{kind: kind.name, without: r, with: r, guess: []string{"right", "changed", "none", "wrong"}[(at+at/3)%4]}
	t.with.Speculate = []scheduler.Speculate{1024, scheduler.SpeculateAuto, 7, 1}[(at+at/12)%4]
	d.all = append(d.all, t)
}

// requests returns the requests with drafts or without.
func (d *draftTwins) requests(drafts bool) (all []coppice.Request) {
	for i := range d.all {
		if t := &d.all[i]; drafts {
			all = append(all, t.with)
		} else {
			all = append(all, t.without)
		}
	}
	return all
}

// expect runs the requests without drafts, and gives the ones with drafts their predictions: the output, a text
// that is no part of it, or the output with a change in the middle.
func (d *draftTwins) expect(t *testing.T, node *coppice.Node) {
	t.Helper()
	results, err := node.Batch(context.Background(), d.requests(false))
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.all {
		twin := &d.all[i]
		twin.want = results[i]
		text := results[i].Text
		switch middle := len(text) / 2; twin.guess {
		case "right":
			twin.with.Prediction = text
		case "wrong":
			twin.with.Prediction = strings.Repeat("<|im_end|>\x00 quite another text \xff\n", 1+len(text)/20)
		case "changed":
			twin.with.Prediction = text[:middle] + " or not" + text[middle+min(5, middle):]
		}
		if drafted, _ := results[i].Drafts.Sum(); drafted > 0 {
			t.Errorf("%s: %d guesses with Speculate off", twin.kind, drafted)
		}
	}
}

// compare runs the requests with drafts, after change has changed them, and checks that they have the results of
// the ones without.
func (d *draftTwins) compare(t *testing.T, node *coppice.Node, change func(i int, r *coppice.Request)) {
	t.Helper()
	all := d.requests(true)
	for i := range all {
		if change != nil {
			change(i, &all[i])
		}
	}
	results, err := node.Batch(context.Background(), all)
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		if why := d.difference(i, results[i]); why != "" {
			d.faults++
			twin := &d.all[i]
			t.Errorf("request %d (%s, temperature %g, %v guesses, %s prediction): %s",
				i, twin.kind, twin.with.Sampling.Temperature, all[i].Speculate, twin.guess, why)
		}
	}
}

// difference says how the result of twin i with drafts differs from the one without; "" if it doesn't.
func (d *draftTwins) difference(i int, got coppice.Result) string {
	twin := &d.all[i]
	if len(got.More) != len(twin.want.More) {
		return fmt.Sprintf("%d outputs, want %d", 1+len(got.More), 1+len(twin.want.More))
	}
	for s := range 1 + len(got.More) {
		x, y := outputAt(&twin.want, s), outputAt(&got, s)
		if why := differentOutput(x, y); why != "" {
			return fmt.Sprintf("output %d %s", s, why)
		}
		drafted, confirmed := y.Drafts.Sum()
		d.outputs, d.tokens, d.preempted = d.outputs+1, d.tokens+y.OutputTokens, d.preempted+y.Preemptions
		d.drafted, d.confirmed = d.drafted+int(drafted), d.confirmed+int(confirmed)
		for source, n := range y.Drafts.Accepted {
			d.sources[source] += n
		}
		if twin.guess == "right" && s == 0 && twin.with.Speculate > 1 {
			d.likely, d.likelyConfirmed = d.likely+y.OutputTokens, d.likelyConfirmed+int(confirmed)
		}
	}
	return ""
}

func outputAt(r *coppice.Result, sample int) *coppice.Output {
	if sample == 0 {
		return &r.Output
	}
	return &r.More[sample-1]
}

// differentOutput says how the output got differs from want in what drafts must not change; "" if it doesn't.
func differentOutput(want, got *coppice.Output) string {
	said := func(what string, want, got any) string { return fmt.Sprintf("has %s %v, want %v", what, got, want) }
	bits := func(all []float32) (b []uint32) {
		for _, f := range all {
			b = append(b, math.Float32bits(f))
		}
		return b
	}
	top := func(a, b []engine.TokenLogprob) bool { return slices.Equal(a, b) }
	switch x, y := &want.Ending, &got.Ending; {
	case !slices.Equal(x.Tokens, y.Tokens):
		return said("tokens", x.Tokens[x.PromptTokens:], y.Tokens[y.PromptTokens:])
	case x.LogitDigest != y.LogitDigest || x.LogitDigest == 0:
		return said("the same tokens and the digest", x.LogitDigest, y.LogitDigest)
	case want.Text != got.Text:
		return said("the text", want.Text, got.Text)
	case !slices.Equal(bits(want.Logprobs), bits(got.Logprobs)) || !slices.EqualFunc(want.Top, got.Top, top):
		return said("the scores", want.Top, got.Top)
	case x.Reason != y.Reason || x.StopString != y.StopString || fmt.Sprint(x.Err) != fmt.Sprint(y.Err):
		return said("the end", fmt.Sprint(x.Reason, x.StopString, x.Err), fmt.Sprint(y.Reason, y.StopString, y.Err))
	case x.PromptTokens != y.PromptTokens || x.OutputTokens != y.OutputTokens || y.CachedTokens+y.ComputedTokens != y.PromptTokens:
		return said("the bill", fmt.Sprint(x.PromptTokens, x.OutputTokens), fmt.Sprint(y.PromptTokens, y.OutputTokens, y.CachedTokens, y.ComputedTokens))
	case timeline(x) != timeline(y):
		return said("the timeline", timeline(x), timeline(y))
	}
	return ""
}

// timeline lists what happened to a sample, but for preemptions and for how much was cached.
func timeline(e *coppice.Ending) string {
	var b strings.Builder
	seen := map[scheduler.Moment]bool{}
	for _, m := range e.Timeline {
		switch {
		case m.What == scheduler.Preempted || seen[m.What] && (m.What == scheduler.Matched || m.What == scheduler.FirstChunk):
			continue
		case m.What == scheduler.Matched || m.What == scheduler.FirstChunk:
			m.Tokens = 0
		}
		seen[m.What] = true
		fmt.Fprintf(&b, "%v (%d) ", m.What, m.Tokens)
	}
	return b.String()
}

// draftNode is how a node runs a model.
type draftNode struct {
	backend, isa string
	pageTokens   int
	kvTokens     int
	kvType       kv.DType
	cfg          scheduler.Config // but for Speculate, which is auto
}

// open opens the model at path; the test closes it.
func (n draftNode) open(t *testing.T, path string) *local.Model {
	t.Helper()
	n.cfg.Speculate = scheduler.SpeculateAuto
	m, err := local.Open(path, local.Options{Node: coppice.Config{Scheduler: n.cfg}, Backend: func(m *model.Model, _ *coppice.Config) (engine.Backend, error) {
		return backends.Open(n.backend, backends.Options{Model: m, PageTokens: n.pageTokens, KVTokens: n.kvTokens, KVType: n.kvType})
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestDrafts checks on the generated model that requests of all kinds get the same results with drafts and without: in
// a pool that holds them and in one that does not, for pages of one token and of 16, with one plan in flight and with
// two, cached and not, on the CPU and on the interpreter of CUDA's kernels.
func TestDrafts(t *testing.T) {
	path := nano(t)
	tok, err := local.Tokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	text := tok.Encode(nil, opticks.Text())
	twins := func(count int) *draftTwins {
		d, rng := &draftTwins{}, rand.New(rand.NewPCG(31, 1))
		for at := range count {
			from := 40 * rng.IntN(20)
			d.add(at, text[from:from+16+rng.IntN(40)], 8+rng.IntN(24))
		}
		return d
	}
	run := func(name string, count int, reference draftNode, others ...draftNode) {
		t.Run(name, func(t *testing.T) {
			if reference.isa != "" {
				t.Setenv(cpu.ISAVariable, reference.isa)
			}
			d := twins(count)
			node := reference.open(t, path).Node
			d.expect(t, node)
			d.compare(t, node, nil)
			for _, other := range others {
				d.compare(t, other.open(t, path).Node, alone)
			}
			t.Log(d)
			if d.confirmed*10 < d.tokens || len(others) > 0 && (d.preempted == 0 || d.sources[scheduler.DraftPrediction] == 0 || d.sources[scheduler.DraftOwn] == 0) {
				t.Error("too little to prove something: want a tenth of the tokens guessed, and preemptions")
			}
		})
	}
	small := draftNode{backend: "cpu", pageTokens: 1, kvTokens: 170, cfg: scheduler.Config{MaxInflight: 2}}
	run("portable", 40, draftNode{backend: "cpu", isa: "portable", pageTokens: 16, kvTokens: 1 << 14}, small)
	run("cpu", 240, draftNode{backend: "cpu", pageTokens: 16, kvTokens: 1 << 14, cfg: scheduler.Config{MaxInflight: 2}}, small)
	run("ptxvm", 3, draftNode{backend: "ptxvm", pageTokens: 16, kvTokens: 1 << 12})
}

// alone separates a request from all others, so that it is guessed from its own text and its prediction.
func alone(i int, r *coppice.Request) { r.Namespace.Salt = fmt.Sprint(i) }
