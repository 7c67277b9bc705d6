package kernels_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/internal/sampling"
	"github.com/coppice-llm/coppice/kv"
)

// sampleRow has the layout of Row in sample.cu.
type sampleRow struct {
	Seed                                                     uint64
	Slot, Index                                              int32
	Temperature, TopP, MinP, Repetition, Presence, Frequency float32
	TopK, Flags, BiasFirst, BiasCount, Mask, BatchRow        int32
	Back, Draft                                              int32
}

type biasEntry struct {
	Token int32
	Bias  float32
}

type drawn struct {
	Status, Token int32
	Logit         float32
}

// draws holds the rows and logits of a launch of sample, and the same rows for the CPU's sampler.
type draws struct {
	vocab  int
	binds  []engine.SlotBind
	rows   []engine.Row
	masks  [][]uint64 // by row, nil: none
	logits []float32

	instructions int64 // of the last launch
}

// add appends a row with a new slot.
func (d *draws) add(g *rand.Rand, p engine.SamplingParams, logits []float32, mask []uint64) {
	slot := engine.Slot(len(d.rows))
	bind := engine.SlotBind{Slot: slot, Sampling: p}
	for range 12 {
		bind.Prompt = append(bind.Prompt, kv.Token(g.IntN(d.vocab)))
		bind.Output = append(bind.Output, kv.Token(g.IntN(d.vocab)), bind.Prompt[0])
	}
	d.binds = append(d.binds, bind)
	d.rows = append(d.rows, engine.Row{Slot: slot, Sample: true, SampleIndex: int32(g.IntN(100))})
	d.masks = append(d.masks, mask)
	d.logits = append(d.logits, logits...)
}

// device samples with the kernel. It also returns counts and last tokens.
func (d *draws) device(t *testing.T) (out []drawn, counts []uint32, last []int32) {
	t.Helper()
	r := newRig(t, "sample", "pages")
	var rows []sampleRow
	biases, masks, entries := []biasEntry{}, []uint64{}, []int32{}
	for i, b := range d.binds {
		p := b.Sampling
		row := sampleRow{Seed: p.Seed, Slot: int32(b.Slot), Index: d.rows[i].SampleIndex, Temperature: p.Temperature, TopP: p.TopP, MinP: p.MinP,
			Repetition: p.RepetitionPenalty, Presence: p.PresencePenalty, Frequency: p.FrequencyPenalty, TopK: p.TopK,
			BiasFirst: int32(len(biases)), BiasCount: int32(len(p.Bias)), Mask: -1, Flags: 2}
		for _, x := range p.Bias {
			biases = append(biases, biasEntry{int32(x.Token), x.Bias})
		}
		if d.masks[i] != nil {
			row.Mask = int32(len(masks) / ((d.vocab + 63) / 64))
			masks = append(masks, d.masks[i]...)
		}
		if p.Penalised() {
			row.Flags |= 1
			for _, x := range b.Prompt {
				entries = append(entries, int32(b.Slot), int32(x), 1)
			}
			for _, x := range b.Output {
				entries = append(entries, int32(b.Slot), int32(x), 0)
			}
		}
		rows = append(rows, row)
	}
	n := len(rows)
	device := put(r, make([]uint32, n*d.vocab))
	if len(entries) > 0 {
		count := len(entries) / 3
		r.launch("pages", "slot_count", ptxvm.Dim{X: (count + 255) / 256}, 256, 0, device, put(r, entries), int32(count), int32(d.vocab))
	}
	result, lastTokens := r.room(12*n), put(r, make([]int32, n))
	r.launch("sample", "sample", ptxvm.Dim{X: n}, kernels.SampleThreads(d.vocab), 0, result, r.room(4*n*d.vocab), put(r, d.logits), put(r, rows), put(r, biases), put(r, masks),
		put(r, make([]int32, n)), lastTokens, device, int32(d.vocab), pointer(0))
	d.instructions = r.m.Stats("sample").Instructions
	return get[drawn](r, result, n), get[uint32](r, device, n*d.vocab), get[int32](r, lastTokens, n)
}

// host samples with engine/internal/sampling.
func (d *draws) host() []engine.RowOut {
	s := sampling.New(len(d.rows), d.vocab)
	out := make([]engine.RowOut, len(d.rows))
	for i := range d.rows {
		s.Bind(&d.binds[i])
		s.Sample(&d.rows[i], i, d.masks[i], d.logits[i*d.vocab:(i+1)*d.vocab], &out[i])
	}
	return out
}

// TestSampleAsTheHost checks that the kernel samples the same tokens as engine/internal/sampling from
// equal logits, for all parameters and with ties among the logits.
func TestSampleAsTheHost(t *testing.T) {
	const vocab = 700
	g := seeded(1)
	d := &draws{vocab: vocab}
	pick := func(v ...float32) float32 { return v[g.IntN(len(v))] }
	for range 150 {
		logits := floats(g, vocab, 3)
		if g.IntN(2) == 0 { // few values, many ties
			for i := range logits {
				logits[i] = float32(math.Round(float64(logits[i])*2) / 2)
			}
		}
		p := engine.SamplingParams{Seed: g.Uint64(), Temperature: pick(0, 0.3, 1, 1, 2, 1e-39), TopP: pick(0, 0, 0.1, 0.9, 0.999, 1),
			MinP: pick(0, 0, 0.05), TopK: int32(pick(0, 0, 1, 5, 40, 699)), RepetitionPenalty: pick(0, 1, 1.3), PresencePenalty: pick(0, 0.5, -2),
			FrequencyPenalty: pick(0, 0.25)}
		for range g.IntN(4) {
			p.Bias = append(p.Bias, engine.TokenBias{Token: kv.Token(len(p.Bias)*100 + g.IntN(100)), Bias: pick(5, -5, 100, float32(math.Inf(-1)), math.MaxFloat32)})
		}
		var mask []uint64
		if g.IntN(3) == 0 {
			mask = make([]uint64, (vocab+63)/64)
			for i := range mask {
				mask[i] = g.Uint64() & g.Uint64()
			}
		}
		d.add(g, p, logits, mask)
	}
	got, counts, last := d.device(t)
	for i, want := range d.host() {
		if want.Err != nil || got[i].Status != 0 || got[i].Token != int32(want.Token) {
			t.Errorf("row %d: %+v, want token %d (%v); %+v, masked %v", i, got[i], want.Token, want.Err, d.binds[i].Sampling, d.masks[i] != nil)
		}
		if last[i] != got[i].Token {
			t.Errorf("row %d: the slot's last token is %d, want %d", i, last[i], got[i].Token)
		}
		outputs := uint32(0)
		if d.binds[i].Sampling.Penalised() {
			outputs = 1
			for _, x := range d.binds[i].Output {
				if int32(x) == got[i].Token {
					outputs++
				}
			}
		}
		if c := counts[i*vocab+int(got[i].Token)] &^ (1 << 31); c != outputs {
			t.Errorf("row %d: the count of its token is %d, want %d", i, c, outputs)
		}
	}
}

// TestCut checks that top-k and top-p keep the same tokens as on the host for logits whose scores crowd
// together or lie far apart, with more tokens than bins and with few and many kept.
func TestCut(t *testing.T) {
	const vocab = 4100 // blocks of 1,024 threads
	g := seeded(5)
	d := &draws{vocab: vocab}
	for i, shape := range []func(i int) float64{
		func(int) float64 { return 3 * g.NormFloat64() },
		func(int) float64 { return math.Round(g.NormFloat64()) },
		func(int) float64 { return 0 },
		func(i int) float64 { return g.NormFloat64() - 60*float64(min(i, 1)) },
		func(int) float64 { return 1e30 * g.NormFloat64() },
		func(i int) float64 { return -float64(i%2) * 1e-40 },
	} {
		logits := make([]float32, vocab)
		for t := range logits {
			logits[t] = float32(shape(t))
		}
		for j, p := range []engine.SamplingParams{{TopK: 1500}, {TopP: 0.9}, {TopK: 40, TopP: 0.5}, {TopK: 4099, TopP: 0.9999}} {
			p.Seed, p.Temperature = uint64(10*i+j), 1
			d.add(g, p, logits, nil)
		}
	}
	got, _, _ := d.device(t)
	for i, want := range d.host() {
		if want.Err != nil || got[i].Status != 0 || got[i].Token != int32(want.Token) {
			t.Errorf("row %d: %+v, want token %d (%v); %+v", i, got[i], want.Token, want.Err, d.binds[i].Sampling)
		}
	}
}

// TestInstructions checks that a thread of sample runs fewer than 30,000 instructions for a row with top-k
// and top-p over the vocabulary of Llama 3, and that the cost of a step has the instructions of sample and
// attn_merge.
func TestInstructions(t *testing.T) {
	const vocab, part = 128256, 4
	run := func(vocab int) int64 {
		g := seeded(6)
		d := &draws{vocab: vocab}
		d.add(g, engine.SamplingParams{Temperature: 1, TopK: 1000, TopP: 0.9}, floats(g, vocab, 3), nil)
		d.device(t)
		return d.instructions
	}
	few, many := run(vocab/part/2), run(vocab/part)
	token := (many - few) / (vocab / part / 2)
	fixed := many - token*vocab/part
	if n := (fixed + token*vocab) / int64(kernels.SampleThreads(vocab)); n >= 30000 {
		t.Errorf("%d instructions a thread, want fewer than 30,000", n)
	}
	near(t, "sample, fixed and a token", []float64{float64(fixed), 1000 * float64(token)}, []float64{kernels.SampleFixed, 1000 * kernels.SampleToken}, 0.1)

	c := newCache(3, 4, 2, 64, 1030)
	merge := func(context int) float64 {
		r := attentionRig(t, 64)
		newPool(r, seeded(1), 4, c).decode([]query{{0, context - 1, c}}, 1, 0)
		return float64(r.m.Stats("attn_merge").Instructions) / float64(c.heads)
	}
	two, four := merge(512), merge(1024)
	split := (four - two) / 2
	near(t, "attn_merge, fixed and a split", []float64{two - 2*split, 10 * split}, []float64{kernels.MergeFixed, 10 * kernels.MergeSplit}, 0.1)
}

// TestSampleAfterDrafts launches three rows, and then their samples after a draft: the first confirmed,
// the second refused, the third after a row that failed. Only the first changes its slot.
func TestSampleAfterDrafts(t *testing.T) {
	const vocab, n = 64, 3
	r := newRig(t, "sample")
	row := func(slot, back, draft int32) sampleRow {
		return sampleRow{Slot: slot, Flags: 3, Presence: 1, Mask: -1, BatchRow: slot, Back: back, Draft: draft}
	}
	logits := make([]float32, 2*n*vocab)
	for i, best := range []int{7, 8, 9, 17, 18, 19} {
		logits[i*vocab+best] = 5
	}
	rows := []sampleRow{row(0, 0, 0), row(1, 0, 0), row(2, 0, 0), row(0, n, 7), row(1, n, 7), row(2, n, 9)}
	result, last, counts := r.room(12*len(rows)), put(r, make([]int32, n)), put(r, make([]uint32, n*vocab))
	device, all, failed := put(r, logits), put(r, rows), put(r, []int32{0, 0, 1})
	for from := 0; from < 2*n; from += n {
		r.launch("sample", "sample", ptxvm.Dim{X: n}, kernels.SampleThreads(vocab), 0, result+pointer(12*from), r.room(4*n*vocab), device+pointer(4*from*vocab), all+pointer(72*from),
			pointer(0), pointer(0), failed, last, counts, int32(vocab), pointer(0))
	}
	const refused = 4
	want := []drawn{{0, 7, 5}, {0, 8, 5}, {3, -1, 0}, {0, 17, 5}, {refused, -1, 0}, {refused, -1, 0}}
	if got := get[drawn](r, result, len(rows)); !slices.Equal(got, want) {
		t.Errorf("the samples are %+v, want %+v", got, want)
	}
	if got := get[int32](r, last, n); !slices.Equal(got, []int32{17, 8, -1}) {
		t.Errorf("the last tokens are %v, want 17, 8 and none", got)
	}
	ones := map[int]bool{7: true, 17: true, vocab + 8: true}
	for i, c := range get[uint32](r, counts, n*vocab) {
		if (c == 1) != ones[i] || c > 1 {
			t.Errorf("slot %d has counted token %d %d times", i/vocab, i%vocab, c)
		}
	}
}

// TestSampleFailures checks rows with NaN or infinite logits, and rows that allow no token.
func TestSampleFailures(t *testing.T) {
	const vocab = 130
	g := seeded(2)
	d := &draws{vocab: vocab}
	nan, inf := floats(g, vocab, 1), floats(g, vocab, 1)
	nan[77], nan[99], inf[129] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
	d.add(g, engine.SamplingParams{Temperature: 1}, nan, nil)
	d.add(g, engine.SamplingParams{}, inf, nil)
	d.add(g, engine.SamplingParams{Temperature: 1, TopP: 0.5}, floats(g, vocab, 1), make([]uint64, 3))
	got, _, last := d.device(t)
	for i, want := range d.host() {
		if want.Err == nil || got[i].Status == 0 || last[i] != -1 || errors.Is(want.Err, engine.ErrNoToken) != (got[i].Status == 2) {
			t.Errorf("row %d: %+v, last %d, want %v", i, got[i], last[i], want.Err)
		}
	}
	if got[0].Token != 77 || got[1].Token != 129 {
		t.Errorf("%+v, want the tokens 77 and 129 named", got[:2])
	}
}

// TestLogprobs checks that norms have the same bits as on the host, and that the best tokens are equal.
func TestLogprobs(t *testing.T) {
	for _, vocab := range []int{16, 700, 1500} {
		g := seeded(uint64(vocab))
		logits := floats(g, 2*vocab, 4)
		logits[3], logits[5] = logits[9], logits[9]
		tops := []int32{20, 0}
		if vocab < 20 {
			tops[0] = int32(vocab)
		}
		r := newRig(t, "sample")
		norms, best := r.room(16), put(r, make([]biasEntry, 40))
		r.launch("sample", "logprobs", ptxvm.Dim{X: 2}, 512, 0, norms, best, put(r, logits), put(r, tops), int32(20), int32(vocab), pointer(0))
		got, list := get[float32](r, norms, 4), get[drawnTop](r, best, 40)
		s := sampling.New(1, vocab)
		s.Bind(&engine.SlotBind{Sampling: engine.SamplingParams{Logprobs: true, TopLogprobs: 20}})
		var want engine.RowOut
		s.Sample(&engine.Row{Sample: true}, 0, nil, logits[:vocab], &want)
		for i, w := range want.Top {
			l := (list[i].Score - got[0]) - got[1]
			if list[i].Token != int32(w.Token) || l != w.Logprob {
				t.Errorf("%s: best %d is %+v, %v; want %+v", fmt.Sprint(vocab), i, list[i], l, w)
			}
		}
		if list[20].Score != 0 {
			t.Error("a list for a row that requests none")
		}
	}
}

// TestPromptLogprobs compares log-probabilities of prompt tokens, also deferred ones, with
// engine/internal/sampling, and checks that NaN and infinite logits fail their row.
func TestPromptLogprobs(t *testing.T) {
	const vocab, top = 700, 3
	logits := floats(seeded(4), 3*vocab, 4)
	logits[2*vocab+600] = float32(math.Inf(-1))
	r := newRig(t, "sample")
	norms, best, picked, failed := r.room(8*3), r.room(8*3*top), r.room(4*3), put(r, make([]int32, 4))
	targets := put(r, []int32{5, 1, 0, -1, 2, 1, 9, 3, 0})
	r.launch("sample", "prompt_logprobs", ptxvm.Dim{X: 3}, 512, 0, norms, best, picked, failed, put(r, logits), targets, put(r, []int32{7, 650}), int32(top), int32(vocab))
	equal(t, "failed", get[int32](r, failed, 4), []int32{0, 0, 0, 1})
	n, list, p := get[float32](r, norms, 4), get[drawnTop](r, best, 2*top), get[float32](r, picked, 2)
	for i, token := range []kv.Token{5, 650} {
		var want engine.RowOut
		sampling.Prompt(&engine.Row{PromptLogprobs: true, PromptTop: top}, logits[i*vocab:][:vocab], token, &want)
		if got := (p[i] - n[2*i]) - n[2*i+1]; got != want.Prompt[0] {
			t.Errorf("token %d: %v, want %v", token, got, want.Prompt[0])
		}
		for k, w := range want.PromptTop[0] {
			if got := list[i*top+k]; got.Token != int32(w.Token) || (got.Score-n[2*i])-n[2*i+1] != w.Logprob {
				t.Errorf("token %d: best %d is %+v, want %+v", token, k, got, w)
			}
		}
	}
}

type drawnTop struct {
	Score float32
	Token int32
}
