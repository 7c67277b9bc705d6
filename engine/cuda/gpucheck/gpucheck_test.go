package gpucheck_test

import (
	"context"
	"encoding/json"
	"errors"
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
	saved := 0
	cfg.Save = func(r *gpucheck.Report) error {
		if r.Complete {
			return nil
		}
		if len(r.Parts) != saved || !strings.Contains(r.String(), "INCOMPLETE") {
			t.Errorf("saved after %d parts: %d, %s", saved, len(r.Parts), r)
		}
		saved++
		return nil
	}
	r, err := gpucheck.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed() != 0 || len(r.Checks) < 16 || len(lines) < len(r.Checks) {
		t.Errorf("%d of %d checks failed:\n%s", r.Failed(), len(r.Checks), r)
	}
	if !r.Complete || saved != len(r.Parts)+1 || len(r.Parts) != 10 {
		t.Errorf("complete %v, saved %d times for %+v", r.Complete, saved, r.Parts)
	}
	if len(r.Speed) != 15 {
		t.Fatalf("%d measurements, want 15:\n%s", len(r.Speed), r)
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

// TestGPUCheckGoesOn checks that a part that fails, and one that panics, are in the report, and that the
// parts after them run.
func TestGPUCheckGoesOn(t *testing.T) {
	cfg := gpucheck.Config{Driver: &unopened{Driver: vm.New(ptxvm.Config{MemoryBytes: 64 << 20})}}.Tiny()
	cfg.Steps, cfg.Checks = nil, []string{}
	last := false
	cfg.More = []gpucheck.Part{
		{Name: "panics", Run: func(context.Context) error { panic("planted") }},
		{Name: "last", Run: func(context.Context) error { last = true; return nil }},
	}
	r, err := gpucheck.Run(context.Background(), cfg)
	if !last || !r.Complete || !errors.Is(err, errUnopened) {
		t.Errorf("the last part ran: %v; complete: %v; %v", last, r.Complete, err)
	}
	failed := map[string]bool{}
	for _, p := range r.Parts {
		failed[p.Name] = p.Error != ""
	}
	for _, name := range []string{"bits", "ceilings", "speed", "panics"} {
		if !failed[name] || !strings.Contains(r.String(), "NOT DONE gpucheck: "+name) {
			t.Errorf("%s has not failed: %s", name, r)
		}
	}
}

var errUnopened = errors.New("planted")

// unopened is a driver whose devices can't be opened.
type unopened struct{ *vm.Driver }

func (u *unopened) Open(int) (cudrv.Context, error) { return nil, errUnopened }
