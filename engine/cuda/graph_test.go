package cuda_test

import (
	"errors"
	"reflect"
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

// counts are of a driver's launches since the last look.
type counts struct {
	kernels  int // launched by themselves
	graphs   int // launched
	captured int // kernels of the last graph that was made
	made     int // graphs
}

// counting is the interpreter's driver; noGraphs has it refuse to make any.
type counting struct {
	*vm.Driver
	noGraphs  bool
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
	return &countingContext{c, d}, err
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

// decodes runs three rows of other sampling each, first their prompts and then steps in which
// they decode, one of them no more after some. It returns all outputs and each step's counts.
func decodes(t *testing.T, d *counting, noGraphs bool) (out []engine.RowOut, steps []counts) {
	t.Helper()
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := cuda.Open(m, cuda.Config{Driver: d, Pages: 24, MaxSlots: 4, MaxRows: 40, MaxTokens: 640, NoGraphs: noGraphs})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	d.take()
	sampling := []engine.SamplingParams{{}, {Temperature: 1, Seed: 4, RepetitionPenalty: 1.2}, {Temperature: 0.7, TopLogprobs: 2, Bias: []engine.TokenBias{{Token: 5, Bias: 2}}}}
	page, position := kv.PageID(0), []int{5, 30, 250} // the last one goes over the end of a split
	for step := range graphSteps + 1 {
		x := &engine.Batch{Seq: uint64(step + 1)}
		for s := range engine.Slot(3) {
			if s == 1 && step > graphSteps/2 {
				continue
			}
			n, row := 1, engine.Row{Slot: s, Start: int32(position[s]), Deferred: true, Sample: true, Digest: true, SampleIndex: int32(step)}
			if step == 0 {
				x.Binds = append(x.Binds, engine.SlotBind{Slot: s, Sampling: sampling[s]})
				n, row.Start, row.Deferred, row.Tokens = position[s], 0, false, make([]kv.Token, position[s])
				for i := range row.Tokens {
					row.Tokens[i] = kv.Token((i*7 + int(s)) % 320)
				}
				position[s] = 0
			}
			for have := kv.CeilPages(position[s], 16); have < kv.CeilPages(position[s]+n, 16); have++ {
				row.Pages = append(row.Pages, page)
				page++
			}
			position[s] += n
			x.Rows = append(x.Rows, row)
		}
		ticket, err := b.Submit(x)
		if err != nil {
			t.Fatal(err)
		}
		<-ticket.Done()
		res, err := ticket.Result()
		if err != nil {
			t.Fatal(err)
		}
		out, steps = append(out, res.Out...), append(steps, d.take())
	}
	return out, steps
}

// TestGraphs: a step whose rows decode is one launch, of a graph that has nine kernels a
// layer and at most 300 for 32 layers; the same graph serves the steps of like sizes; bits
// are those of kernels launched one by one. A driver that makes no graphs is used without.
func TestGraphs(t *testing.T) {
	d := &counting{Driver: vm.New(ptxvm.Config{MemoryBytes: 64 << 20})}
	got, steps := decodes(t, d, false)
	nano := kernels.Shape{Hidden: 64, FFN: 176, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 320}
	launches := func(s kernels.Shape) int {
		n := 5 // table_write, check_finite, slot_fail, sample, logprobs
		for _, c := range s.Decode(1, 100) {
			n += c.Launches
		}
		return n
	}
	made := 0
	for i, n := range steps[1:] {
		made += n.made
		if n.kernels != 0 || n.graphs != 1 || n.made == 1 && n.captured != launches(nano) {
			t.Errorf("step %d: %+v, want one graph of %d kernels", i, n, launches(nano))
		}
	}
	if steps[0].graphs != 0 || made < 1 || made > 4 {
		t.Errorf("%d graphs for steps, %d of the prompts", made, steps[0].graphs)
	}
	if n := launches(kernels.Llama8B); n > 300 {
		t.Errorf("%d kernels for 32 layers", n)
	}
	want, alone := decodes(t, d, true)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwithout graphs %+v", got, want)
	}
	if n := alone[1]; n.graphs != 0 || n.kernels < launches(nano)-1 {
		t.Errorf("without graphs: %+v", n)
	}
	refuses := &counting{Driver: d.Driver, noGraphs: true}
	if got, steps := decodes(t, refuses, false); !reflect.DeepEqual(got, want) || steps[1].graphs != 0 || steps[2].captured != 0 {
		t.Errorf("with a driver that makes no graphs: %+v, %+v", steps[1], steps[2])
	}
}
