package backends_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/engine/sim"
	"github.com/coppice-llm/coppice/kv"
)

func nano(t *testing.T) *model.Model {
	t.Helper()
	dir := t.TempDir()
	if err := random.Generate(dir, random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestOpen: every backend of the list opens by its name, with the requested size.
func TestOpen(t *testing.T) {
	m := nano(t)
	if names := backends.Names(); !slices.IsSorted(names) || !slices.Contains(names, "cpu") {
		t.Errorf("names %v", names)
	}
	for _, name := range backends.Names() {
		b, err := backends.Open(name, backends.Options{
			Model: m, PageTokens: 8, KVTokens: 65, MaxSlots: 3, MaxRows: 2, MaxTokens: 64, MaxInflight: 3, Threads: 1,
			GPU: backends.GPU{Driver: vm.New(ptxvm.Config{MemoryBytes: 64 << 20})},
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		i := b.Info()
		if i.PageTokens != 8 || i.NumPages != 9 || i.MaxSlots != 3 || i.MaxRows != 2 || i.MaxTokens != 64 || i.MaxInflight != 3 || i.Vocab != m.Config().Vocab {
			t.Errorf("%s: %+v", name, i)
		}
		if err := b.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBytes: a pool sized in bytes has as many whole pages as fit, at least one.
func TestBytes(t *testing.T) {
	m := nano(t)
	c := m.Config()
	page := int64(2 * 4 * c.Layers * c.KVHeads * c.HeadDim * 16)
	half, err := backends.Open("cpu", backends.Options{Model: m, KVBytes: 2 * page, KVType: kv.F16, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if i := half.Info(); i.NumPages != 4 || int64(i.PageBytes) != page/2 || i.KVType != kv.F16 {
		t.Errorf("%d bytes of f16: %d pages of %d", 2*page, i.NumPages, i.PageBytes)
	}
	half.Close()
	for _, extra := range []int64{-1, 0, 1} {
		b, err := backends.Open("cpu", backends.Options{Model: m, KVBytes: 2*page + extra, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := 2
		if extra < 0 {
			want = 1
		}
		if i := b.Info(); i.NumPages != want || int64(i.PageBytes) != page {
			t.Errorf("%d bytes: %d pages of %d", 2*page+extra, i.NumPages, i.PageBytes)
		}
		b.Close()
	}
	if _, err := backends.Open("cpu", backends.Options{Model: m, KVBytes: page - 1}); !errors.Is(err, backends.ErrMemory) {
		t.Errorf("less than a page: %v", err)
	}
}

func TestRefused(t *testing.T) {
	if _, err := backends.Open("tpu", backends.Options{}); !errors.Is(err, backends.ErrUnknown) || !strings.Contains(err.Error(), "cpu, cuda, ptxvm, sim") {
		t.Errorf("an unknown name: %v", err)
	}
	for name, o := range map[string]backends.Options{"cpu": {}, "sim": {MaxInflight: 1, Sim: backends.Simulation{Sanitize: sim.Boundary}}} {
		b, err := backends.Open(name, o)
		if err == nil || b != engine.Backend(nil) {
			t.Errorf("%s opens with %+v: %v, %v", name, o, b, err)
		}
	}
}

// TestMeasuredPool: without a size, cuda's pool fills the free device memory, and a smaller
// Memory fraction makes a smaller pool.
func TestMeasuredPool(t *testing.T) {
	m := nano(t)
	pages := 0
	for _, share := range []float64{0.5, 0.9} {
		driver := vm.New(ptxvm.Config{MemoryBytes: 32 << 20})
		b, err := backends.Open("cuda", backends.Options{Model: m, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, GPU: backends.GPU{Driver: driver, Memory: share}})
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Info().NumPages; n <= pages || n*b.Info().PageBytes > int(share*(32<<20)) {
			t.Errorf("%v of 32 MiB: %d pages of %d bytes, %d before", share, n, b.Info().PageBytes, pages)
		} else {
			pages = n
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
