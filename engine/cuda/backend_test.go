package cuda_test

import (
	"flag"
	"os"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/internal/leaks"
)

// nanoDir holds the model that the conformance suite runs on.
var nanoDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "coppice-cuda")
	if err == nil {
		err = random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1})
	}
	if err != nil {
		panic(err)
	}
	nanoDir = dir
	code := leaks.Run(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// driver is shared by all tests, so that kernels are decoded once.
var driver = vm.New(ptxvm.Config{MemoryBytes: 256 << 20})

// conform opens a backend of the nano model on the interpreter.
func conform(t testing.TB, o enginetest.Options) engine.Backend {
	t.Helper()
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return open(t, m, o)
}

func open(t testing.TB, m *model.Model, o enginetest.Options, change ...func(c *cuda.Config)) engine.Backend {
	t.Helper()
	c := cuda.Config{Driver: driver, PageTokens: o.PageTokens, Pages: o.Pages,
		MaxSlots: o.MaxSlots, MaxRows: o.MaxRows, MaxTokens: o.MaxTokens, MaxInflight: o.MaxInflight}
	for _, f := range change {
		f(&c)
	}
	b, err := cuda.Open(m, c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	if !cuda.RaceDetector {
		enginetest.Run(t, conform)
		return
	}
	// The interpreter is ten times slower with the race detector: run only the checks that
	// involve several goroutines.
	for _, check := range []string{"close", "moves"} {
		if err := enginetest.Try(t, conform, check); err != nil {
			t.Errorf("%s: %v", check, err)
		}
	}
}

var (
	every     = flag.Bool("every", false, "run the whole suite on models of all architectures and head sizes, two minutes")
	allShapes = cuda.AllShapes
)

// modelFree names the checks of sampling, of copies and of the contract, which depend on no model: drafts are computed as the tokens of a
// chunk are. TestConformance runs them.
var modelFree = []string{
	"preempt-resume", "moves", "slot-reuse", "ownership", "stale-poison", "row-error", "seed", "penalties", "mask", "masks", "bias",
	"drafts", "draft-errors", "answers", "validation", "busy", "close", "stats",
}

// TestConformanceOfShapes runs check batch-mix on a model of another architecture and head size, and
// check deferred on the nano model without graphs. With -shapes it runs all checks of kernels, on
// more models; with -every all checks.
func TestConformanceOfShapes(t *testing.T) {
	if cuda.RaceDetector {
		t.Skip("the nano model is enough")
	}
	shapes := []string{"llama-d80-f16"}
	if *every || *allShapes {
		shapes = append(shapes, "qwen3-d32-bf16", "qwen3-d96-bf16", "llama3-d64-bf16", "llama-bias-f16", "mistral-bf16", "qwen2-d16-bf16", "qwen2-d128-f16", "qwen3-d16-bf16")
	}
	for _, name := range shapes {
		m := cuda.OpenGolden(t, name, false)
		factory := func(t testing.TB, o enginetest.Options) engine.Backend { return open(t, m, o) }
		if *every || *allShapes {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // each uses one processor
				if *every {
					enginetest.Run(t, factory)
				} else {
					enginetest.Run(t, factory, modelFree...)
				}
			})
		} else if err := enginetest.Try(t, factory, "batch-mix"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	factory := func(t testing.TB, o enginetest.Options) engine.Backend { return open(t, m, o, noGraphs) }
	if *every || *allShapes {
		t.Run("without graphs", func(t *testing.T) {
			t.Parallel()
			enginetest.Run(t, factory)
		})
	} else if err := enginetest.Try(t, factory, "deferred"); err != nil {
		t.Errorf("without graphs: %v", err)
	}
}

func noGraphs(c *cuda.Config) { c.NoGraphs = true }

var controls = flag.Bool("controls", false, "run the suite on backends that are broken on purpose, a minute")

// TestControls checks that the suite fails each backend that is broken on purpose.
func TestControls(t *testing.T) {
	if !*controls {
		t.Skip("takes a minute: -args -controls")
	}
	enginetest.RunControls(t, conform)
}
