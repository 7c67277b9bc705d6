package cuda_test

import (
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// counts holds a driver's launches since the last take.
type counts struct {
	kernels  int // launched one by one
	graphs   int // launched
	captured int // kernels of the last graph that was captured
	made     int // graphs instantiated
	copies   int // to the host
	failed   int // graphs, as the step's figures have it
}

// counting wraps the interpreter's driver and counts launches. With noGraphs it refuses to
// instantiate graphs.
type counting struct {
	*vm.Driver
	noGraphs bool
	wide     int         // multiprocessors, if not 0
	opened   *vm.Context // the last one
	// Bytes that attention by splits, and of prompts by all splits, had loaded at the last Close.
	decodeBytes, prefillBytes int64

	mu        sync.Mutex
	n         counts
	capturing bool
}

type countingContext struct {
	cudrv.Context
	d *counting
}

func (d *counting) Open(i int) (cudrv.Context, error) {
	c, err := d.Driver.Open(i)
	if err != nil {
		return nil, err
	}
	d.opened = c.(*vm.Context)
	return &countingContext{c, d}, nil
}

func (d *counting) Properties(i int) (cudrv.Properties, error) {
	p, err := d.Driver.Properties(i)
	if d.wide > 0 {
		p.Multiprocessors = d.wide
	}
	return p, err
}

// Close keeps the bytes that attention has loaded: the interpreter forgets them.
func (c *countingContext) Close() error {
	m := c.d.opened.Machine()
	c.d.decodeBytes, c.d.prefillBytes = m.Stats("attn_decode_16").ReadBytes, m.Stats("attn_prefill_16").ReadBytes
	return c.Context.Close()
}

func (d *counting) take() counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.n
	d.n = counts{}
	return n
}

func (c *countingContext) Launch(f cudrv.Function, l cudrv.Launch) error {
	c.d.mu.Lock()
	if c.d.capturing {
		c.d.n.captured++
	} else {
		c.d.n.kernels++
	}
	c.d.mu.Unlock()
	return c.Context.Launch(f, l)
}

func (c *countingContext) CopyOut(s cudrv.Stream, dst []byte, src cudrv.Ptr) error {
	c.d.mu.Lock()
	c.d.n.copies++
	c.d.mu.Unlock()
	return c.Context.CopyOut(s, dst, src)
}

func (c *countingContext) BeginCapture(s cudrv.Stream) error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.capturing, c.d.n.captured = true, 0
	return c.Context.BeginCapture(s)
}

func (c *countingContext) EndCapture(s cudrv.Stream) (cudrv.Graph, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.capturing = false
	return c.Context.EndCapture(s)
}

func (c *countingContext) Instantiate(g cudrv.Graph) (cudrv.GraphExec, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.noGraphs {
		return 0, &cudrv.Error{Call: "cuGraphInstantiate", Code: cudrv.CodeOutOfMemory, Err: errors.New("planted")}
	}
	c.d.n.made++
	return c.Context.Instantiate(g)
}

func (c *countingContext) LaunchGraph(x cudrv.GraphExec, s cudrv.Stream) error {
	c.d.mu.Lock()
	c.d.n.graphs++
	c.d.mu.Unlock()
	return c.Context.LaunchGraph(x, s)
}

const graphSteps = 22 // after the prompts; a page is filled on the way

// decodeRun describes a run of three rows with different sampling parameters: first the prompts,
// then steps that decode. Slot 1 stops halfway.
type decodeRun struct {
	prompts  [3]int // tokens of each prompt
	common   int    // tokens that all prompts begin with, whole pages
	share    bool   // slots 1 and 2 use the pages of slot 0 for these tokens
	noGraphs bool
	states   int // bytes for states of splits, if not 0
}

// on runs x on driver d, and returns all outputs and the counts of each step.
func (x decodeRun) on(t *testing.T, d *counting) (out []engine.RowOut, steps []counts) {
	t.Helper()
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := cuda.Config{Driver: d, Pages: 56, MaxSlots: 4, MaxRows: 40, MaxTokens: 800, NoGraphs: x.noGraphs}
	cuda.LimitStates(&c, x.states)
	b, err := cuda.Open(m, c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	d.take()
	sampling := []engine.SamplingParams{{}, {Temperature: 1, Seed: 4, RepetitionPenalty: 1.2, TopLogprobs: 1}, {Temperature: 0.7, TopLogprobs: 2, Bias: []engine.TokenBias{{Token: 5, Bias: 2}}}}
	page, position := kv.PageID(0), x.prompts
	mask := []uint64{0, 0xff0, 0, 0, 0} // of 320 tokens
	for step := range graphSteps + 1 {
		batch := &engine.Batch{Seq: uint64(step + 1)}
		if step == 0 {
			batch.Masks = []engine.MaskSet{{ID: 1, Bits: mask}}
		}
		for s := range engine.Slot(3) {
			if s == 1 && step > graphSteps/2 {
				continue
			}
			row := engine.Row{Slot: s, Start: int32(position[s]), Deferred: true, Sample: true, Digest: true, SampleIndex: int32(step)}
			if s == 0 && step%2 == 0 {
				row.Mask = 1
			}
			end := position[s] + 1
			if step == 0 {
				bind := engine.SlotBind{Slot: s, Sampling: sampling[s]}
				end, position[s] = position[s], 0
				if x.share && s > 0 {
					position[s] = x.common
					for p := range x.common / 16 {
						bind.Pages = append(bind.Pages, kv.PageID(p))
					}
				}
				batch.Binds = append(batch.Binds, bind)
				row.Start, row.Deferred = int32(position[s]), false
				row.Tokens = x.prompt(s, position[s], end)
			}
			for have := kv.CeilPages(position[s], 16); have < kv.CeilPages(end, 16); have++ {
				row.Pages = append(row.Pages, page)
				page++
			}
			position[s] = end
			batch.Rows = append(batch.Rows, row)
		}
		ticket, err := b.Submit(batch)
		if err != nil {
			t.Fatal(err)
		}
		<-ticket.Done()
		res, err := ticket.Result()
		if err != nil {
			t.Fatal(err)
		}
		checkOutputs(t, step, res.Out, mask)
		n := d.take()
		n.failed = res.Stats.GraphFailures
		out, steps = append(out, res.Out...), append(steps, n)
	}
	return out, steps
}

// prompt returns the tokens of a slot's prompt between two positions: the common ones, and then its own.
func (x decodeRun) prompt(s engine.Slot, from, to int) (tokens []kv.Token) {
	for i := from; i < to; i++ {
		own := 0
		if i >= x.common {
			own = int(s)
		}
		tokens = append(tokens, kv.Token((i*7+own)%320))
	}
	return tokens
}

// checkOutputs checks that the first row of every second step has a token of the mask, and that the last
// row has its log-probabilities.
func checkOutputs(t *testing.T, step int, out []engine.RowOut, mask []uint64) {
	t.Helper()
	if token := out[0].Token; step%2 == 0 && mask[token/64]>>(token%64)&1 == 0 {
		t.Errorf("step %d: the mask forbids token %d", step, token)
	}
	if last := out[len(out)-1]; len(last.Top) != 2 {
		t.Errorf("step %d: %d log-probabilities, want 2", step, len(last.Top))
	}
}

// launches returns the number of kernels in a graph of that shape.
func launches(s kernels.Shape) int {
	n := 1 // logprobs
	for _, c := range s.Decode(1, 100) {
		if c.Kernel != "copies" {
			n += c.Launches
		}
	}
	return n
}

// checkGraphs checks that each step after the prompts is one launch, of a graph with as many
// kernels as launches counts, and that few graphs are made.
func checkGraphs(t *testing.T, steps []counts) {
	t.Helper()
	want := launches(kernels.Shape{Hidden: 64, FFN: 176, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 320}) // the nano model
	made := 0
	for i, n := range steps[1:] {
		made += n.made
		if n.kernels != 0 || n.graphs != 1 || n.made == 1 && n.captured != want {
			t.Errorf("step %d: %+v, want one graph of %d kernels", i, n, want)
		}
	}
	if steps[1].copies != 5 {
		t.Errorf("%d copies of results for rows with log-probabilities, want 5 for any number of them: failures, tokens, logits, norms and lists", steps[1].copies)
	}
	if steps[0].graphs != 0 || made < 1 || made > 4 {
		t.Errorf("%d graphs for decode steps, %d for the prompts", made, steps[0].graphs)
	}
}

// TestGraphs checks that a step of decoding rows is one launch, of a graph with nine kernels per
// layer and at most 300 for 32 layers; that steps of similar sizes use the same graph; that bits
// equal those of kernels launched one by one; and that a driver that can't make graphs is used
// without them. The same holds for rows that share the pages of a prefix, which are read once.
func TestGraphs(t *testing.T) {
	if n := launches(kernels.Llama8B); n > 300 {
		t.Errorf("%d kernels for 32 layers", n)
	}
	d := &counting{Driver: vm.New(ptxvm.Config{MemoryBytes: 64 << 20})}
	x := decodeRun{prompts: [3]int{5, 30, 250}} // the last one crosses the end of a split
	got, steps := x.on(t, d)
	checkGraphs(t, steps)
	x.noGraphs = true
	want, alone := x.on(t, d)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwithout graphs %+v", got, want)
	}
	if n := alone[1]; n.graphs != 0 || n.kernels < steps[1].captured-1 {
		t.Errorf("without graphs: %+v", n)
	}
	x.noGraphs = false
	refuses := &counting{Driver: d.Driver, noGraphs: true}
	got, steps = x.on(t, refuses)
	var tried []int
	for i, n := range steps {
		if n.captured > 0 && n.failed == 1 {
			tried = append(tried, i)
		}
		if n.graphs != 0 || n.failed > 0 && n.captured == 0 {
			t.Errorf("step %d with a driver that makes no graphs: %+v", i, n)
		}
	}
	if !reflect.DeepEqual(got, want) || !slices.Equal(tried, []int{1, 10}) {
		t.Errorf("with a driver that makes no graphs they are tried in steps %v, want in 1 and in 10, after 8 others", tried)
	}

	x = decodeRun{prompts: [3]int{261, 259, 257}, common: 256, noGraphs: true}
	want, _ = x.on(t, d)
	apart := d.decodeBytes
	x.share, x.noGraphs = true, false
	got, steps = x.on(t, d)
	checkGraphs(t, steps)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sharing pages %+v\nwithout %+v", got, want)
	}
	if shared := d.decodeBytes; shared == 0 || 3*shared > 2*apart { // each row also has tokens of its own
		t.Errorf("rows that share 256 positions read %d bytes in attention, rows with pages of their own %d", shared, apart)
	}
}
