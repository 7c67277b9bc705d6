package gpucheck_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/gpucheck"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// TestGPUCheckRuns runs all checks and measurements on the interpreter. All checks must pass.
func TestGPUCheckRuns(t *testing.T) {
	var lines []string
	cfg := gpucheck.Config{Driver: vm.New(ptxvm.Config{MemoryBytes: 64 << 20})}.Tiny()
	cfg.Log = func(line string) { lines = append(lines, line) }
	r, err := gpucheck.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed() != 0 || len(r.Checks) < 16 || len(lines) < len(r.Checks) {
		t.Errorf("%d of %d checks failed:\n%s", r.Failed(), len(r.Checks), r)
	}
	if len(r.Speed) != 6 {
		t.Fatalf("%d measurements, want 6:\n%s", len(r.Speed), r)
	}
	for _, s := range r.Speed {
		if s.Tokens == 0 || s.PerSec <= 0 || s.Note != "" {
			t.Errorf("%+v", s)
		}
	}
	if r.Ceilings.PagesToHost <= 0 || r.Ceilings.ToPages <= 0 {
		t.Errorf("%+v", r.Ceilings)
	}
	if text, err := json.Marshal(r); err != nil || !strings.Contains(string(text), "tokens_per_second") {
		t.Errorf("%s, %v", text, err)
	}
	if !strings.Contains(r.String(), "0 failed") || !strings.Contains(r.String(), "PTX interpreter") {
		t.Errorf("%s", r)
	}
}

// skewed is a device that sometimes skips a product.
type skewed struct{ *vm.Driver }

type skewedContext struct {
	cudrv.Context
	n int
}

func (s skewed) Open(i int) (cudrv.Context, error) {
	c, err := s.Driver.Open(i)
	return &skewedContext{Context: c}, err
}

func (c *skewedContext) Launch(f cudrv.Function, l cudrv.Launch) error {
	if product := 56; len(l.Args) == product {
		if c.n++; c.n%7 == 0 {
			return nil
		}
	}
	return c.Context.Launch(f, l)
}

// TestGPUCheckFinds checks that a device that sometimes skips a product fails.
func TestGPUCheckFinds(t *testing.T) {
	cfg := gpucheck.Config{Driver: skewed{vm.New(ptxvm.Config{MemoryBytes: 64 << 20})}}.Tiny()
	cfg.Checks = []string{"logprobs"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg.Log = func(line string) {
		if strings.HasPrefix(line, "FAIL") {
			cancel() // one failed check is enough
		}
	}
	r, err := gpucheck.Run(ctx, cfg)
	if r.Failed() == 0 {
		t.Errorf("passes, %v:\n%s", err, r)
	}
}
