package cuda_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
)

// posing wraps the interpreter's driver and reports other properties.
type posing struct {
	*vm.Driver
	version, devices int
	properties       cudrv.Properties
}

func (p *posing) Version() (int, error)                    { return p.version, nil }
func (p *posing) Devices() (int, error)                    { return p.devices, nil }
func (p *posing) Properties(int) (cudrv.Properties, error) { return p.properties, nil }

// TestUnusable checks that Open refuses an unsuitable device or driver before it uploads anything, and
// names the reason.
func TestUnusable(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	hopper := cudrv.Properties{Name: "H100", Major: 9, MemoryBytes: 80 << 30, SharedPerBlock: 227 << 10}
	turing := cudrv.Properties{Name: "T4", Major: 7, Minor: 5, SharedPerBlock: 64 << 10}
	narrow := cudrv.Properties{Name: "Narrow", Major: 8, SharedPerBlock: 1 << 10}
	small, large := vm.New(ptxvm.Config{MemoryBytes: 1 << 18}), vm.New(ptxvm.Config{MemoryBytes: 32 << 20})
	for name, c := range map[string]struct {
		driver *posing
		device int
		pages  int
		want   error
		says   []string
	}{
		"no device":         {&posing{large, 13000, 0, hopper}, 0, 0, cudrv.ErrNoDevice, []string{"GPU 0", "has 0"}},
		"no such device":    {&posing{large, 13000, 2, hopper}, 2, 0, cudrv.ErrNoDevice, []string{"GPU 2", "has 2"}},
		"a negative device": {&posing{large, 13000, 2, hopper}, -1, 0, cudrv.ErrNoDevice, []string{"GPU -1"}},
		"an old driver":     {&posing{large, 12040, 1, hopper}, 0, 0, cuda.ErrOld, []string{"CUDA 12.4", "13.0", "driver 580"}},
		"an old device":     {&posing{large, 13000, 1, turing}, 0, 0, cuda.ErrOld, []string{"T4", "7.5", "8.0"}},
		"a narrow device":   {&posing{large, 13000, 1, narrow}, 0, 0, cuda.ErrOld, []string{"Narrow", "1024", "8192"}},
		"little memory":     {&posing{small, 13000, 1, hopper}, 0, 0, cuda.ErrMemory, []string{"of 0.2 MiB", "90%", "weights take"}},
		"too large a pool":  {&posing{large, 13000, 1, hopper}, 0, 1 << 20, cuda.ErrMemory, []string{"32.0 MiB", "the pool"}},
	} {
		b, err := cuda.Open(m, cuda.Config{Driver: c.driver, Device: c.device, Pages: c.pages, MaxSlots: 2, MaxRows: 2, MaxTokens: 64})
		if b != nil {
			b.Close()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not say %q", name, err, s)
			}
		}
	}
}

// TestProgress checks that the upload reports exactly the planned bytes.
func TestProgress(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	last, whole := 0, 0
	b, err := cuda.Open(m, cuda.Config{Driver: driver, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, Progress: func(done, total int) {
		if done <= last || done > total || whole != 0 && total != whole {
			t.Errorf("%d of %d bytes after %d of %d", done, total, last, whole)
		}
		last, whole = done, total
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if last < whole*9/10 {
		t.Errorf("%d of %d bytes at the end", last, whole)
	}
}

// TestTokensFitAGrid checks that Open refuses more tokens per batch than a grid has blocks.
func TestTokensFitAGrid(t *testing.T) {
	for tokens, ok := range map[int]bool{1<<16 - 1: true, 1 << 16: false} {
		c := cuda.Config{Driver: driver, Pages: 1, MaxTokens: tokens}
		if err := c.WithDefaults().Validate(); (err == nil) != ok {
			t.Errorf("%d tokens a batch: %v", tokens, err)
		}
	}
}

// hopper makes the interpreter a device of compute capability 9.0. It accepts machine code, and
// executes the PTX of the same module; with refuses it rejects machine code.
type hopper struct {
	*vm.Driver
	refuses  bool
	code     int // modules loaded as machine code
	compiled int // modules loaded as PTX
}

type hopperContext struct {
	cudrv.Context
	d *hopper
}

func (d *hopper) Properties(i int) (cudrv.Properties, error) {
	p, err := d.Driver.Properties(i)
	p.Major, p.Minor = 9, 0
	return p, err
}

func (d *hopper) Open(i int) (cudrv.Context, error) {
	c, err := d.Driver.Open(i)
	return &hopperContext{c, d}, err
}

func (c *hopperContext) Load(image []byte) (cudrv.Module, error) {
	for _, n := range kernels.Names() {
		if !bytes.Equal(image, kernels.Cubin(n, 9, 0)) {
			continue
		}
		if c.d.refuses {
			return 0, &cudrv.Error{Call: "cuModuleLoadDataEx", Code: cudrv.CodeInvalidPTX, Err: errors.New("planted")}
		}
		c.d.code++
		return c.Context.Load(kernels.PTX(n))
	}
	c.d.compiled++
	return c.Context.Load(image)
}

// TestMachineCode checks that machine code is loaded if it is embedded for the device, and PTX if the
// driver rejects it.
func TestMachineCode(t *testing.T) {
	m, err := model.Open(nanoDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, refuses := range []bool{false, true} {
		d := &hopper{Driver: driver, refuses: refuses}
		b, err := cuda.Open(m, cuda.Config{Driver: d, Pages: 8, MaxSlots: 2, MaxRows: 2, MaxTokens: 64})
		if err != nil {
			t.Fatal(err)
		}
		if r := steps(b, 0); r.done != 4 || r.err != nil {
			t.Errorf("%d steps, %v", r.done, r.err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if want := 7; refuses && (d.code != 0 || d.compiled != want) || !refuses && (d.code != want || d.compiled != 0) {
			t.Errorf("refuses %v: %d modules of machine code, %d of PTX", refuses, d.code, d.compiled)
		}
	}
}
