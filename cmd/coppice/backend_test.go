package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/backends"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/system"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv/vm"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// TestNoGPU checks that without a driver or a GPU each command fails with advice.
func TestNoGPU(t *testing.T) {
	if d, err := system.Open(); err == nil {
		if n, err := d.Devices(); err == nil && n > 0 {
			t.Skip("there is a GPU")
		}
	}
	dir := nano(t)
	for _, args := range [][]string{{"generate", "--model", dir, "x"}, {"bench", "chat", "--model", dir}, {"serve", "--model", dir, "--addr", "127.0.0.1:0"}} {
		refused(t, []string{"--backend cpu"}, append(args, "--backend", "cuda")...)
	}
	refused(t, []string{"--backend ptxvm"}, "gpucheck")
	refused(t, []string{"--gpu is for --backend cuda"}, "serve", "--gpu", "1")
	refused(t, []string{"--gpu-memory is 1.5"}, "serve", "--backend", "cuda", "--gpu-memory", "1.5")
}

// posing is the interpreter's driver with made-up versions and properties.
type posing struct {
	*vm.Driver
	version, devices, major int
}

func (p *posing) Version() (int, error) { return p.version, nil }
func (p *posing) Devices() (int, error) { return p.devices, nil }
func (p *posing) Properties(i int) (cudrv.Properties, error) {
	found, err := p.Driver.Properties(i)
	found.Major = p.major
	return found, err
}

// TestRemediesOfGPUCheck checks that the advice names no flags that gpucheck lacks.
func TestRemediesOfGPUCheck(t *testing.T) {
	for _, err := range []error{cudrv.ErrUnavailable, cudrv.ErrNoDevice, cudrv.ErrMemory, cuda.ErrOld, cuda.ErrMemory} {
		text := remedy(err, "ptxvm")
		for _, flag := range regexp.MustCompile(`--[a-z-]+(?: cpu)?`).FindAllString(text, -1) {
			if !slices.Contains([]string{"--backend", "--gpu", "--gpu-memory"}, flag) {
				t.Errorf("%v: %s in %q", err, flag, text)
			}
		}
		if text == "" {
			t.Errorf("%v: no advice", err)
		}
	}
}

// TestRemedies checks the advice for each fault of a GPU.
func TestRemedies(t *testing.T) {
	m, err := model.Open(nano(t))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	large, small := vm.New(ptxvm.Config{MemoryBytes: 64 << 20}), vm.New(ptxvm.Config{MemoryBytes: 1 << 18})
	for _, c := range []struct {
		driver *posing
		device int
		says   []string
	}{
		{&posing{large, 13000, 1, 9}, 1, []string{"GPU 1", "--gpu", "nvidia-smi"}},
		{&posing{large, 12020, 1, 9}, 0, []string{"CUDA 12.2", "Update NVIDIA's driver to 580"}},
		{&posing{large, 13000, 1, 7}, 0, []string{"compute capability 7.0", "another GPU by --gpu"}},
		{&posing{small, 13000, 1, 9}, 0, []string{"weights take", "raise --gpu-memory"}},
	} {
		b, err := openBackend("cuda", backends.Options{Model: m, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, GPU: backends.GPU{Driver: c.driver, Device: c.device}})
		if err == nil {
			b.Close()
			t.Errorf("%+v opens", c.driver)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%v does not say %q", err, s)
			}
		}
	}
}

// TestBF16Weights checks --gpu-bf16-weights: answers are the same with and without it, and weights that stay
// quantised take less memory.
func TestBF16Weights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nano.gguf")
	if err := random.GenerateGGUF(path, random.Spec{Preset: random.Nano, Seed: 1}, gguf.Q8_0); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "--backend", "ptxvm", "--model", path, "--kv-tokens", "64", "--max-tokens", "3", "--digest", "a"}
	want, stderr, ok := command(t, args...)
	if !ok || want == "" {
		t.Fatalf("%q: %s", want, stderr)
	}
	if got, stderr, ok := command(t, append(args, "--gpu-bf16-weights")...); !ok || got != want {
		t.Errorf("%q with weights in bf16, %q without: %s", got, want, stderr)
	}
	refused(t, []string{"--gpu-bf16-weights is for --backend cuda or ptxvm"}, "serve", "--gpu-bf16-weights")

	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	small := &posing{vm.New(ptxvm.Config{MemoryBytes: 1 << 18}), 13000, 1, 9}
	var takes [2]float64
	for i, widened := range []bool{false, true} {
		_, err := openBackend("cuda", backends.Options{Model: m, KVTokens: 16, MaxSlots: 2, MaxRows: 2, MaxTokens: 64, GPU: backends.GPU{Driver: small, BF16Weights: widened}})
		if _, after, ok := strings.Cut(fmt.Sprint(err), "weights take "); ok {
			fmt.Sscan(after, &takes[i])
		}
	}
	if !(0 < takes[0] && takes[0] < takes[1]) {
		t.Errorf("%v MiB, %v in bf16", takes[0], takes[1])
	}
}
