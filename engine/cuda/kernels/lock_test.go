package kernels_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// TestLock checks that sources and PTX have the hashes in lock.json, here and in the interpreter's
// testdata. CI compiles them again with tools/cuda.
func TestLock(t *testing.T) {
	for _, dir := range []string{".", "../ptxvm/testdata"} {
		text, err := os.ReadFile(filepath.Join(dir, "lock.json"))
		if err != nil {
			t.Fatal(err)
		}
		var lock struct {
			Sources, PTX map[string]string
			Usage        map[string]map[string]struct{ Registers, SpillBytes int }
		}
		if err := json.Unmarshal(text, &lock); err != nil {
			t.Fatal(err)
		}
		sources, _ := filepath.Glob(filepath.Join(dir, "*.cu"))
		headers, _ := filepath.Glob(filepath.Join(dir, "*.cuh"))
		sources = append(sources, headers...)
		made, _ := filepath.Glob(filepath.Join(dir, "*.ptx"))
		for names, locked := range map[*[]string]map[string]string{&sources: lock.Sources, &made: lock.PTX} {
			if len(*names) != len(locked) {
				t.Errorf("%s: %d files, %d are locked", dir, len(*names), len(locked))
			}
			for _, path := range *names {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(data)
				if hex.EncodeToString(sum[:]) != locked[filepath.Base(path)] {
					t.Errorf("%s does not have the hash in lock.json: run tools/cuda build", path)
				}
			}
		}
		for kernel, targets := range lock.Usage {
			for target, u := range targets {
				if u.SpillBytes > 0 {
					t.Errorf("%s spills %d bytes on %s", kernel, u.SpillBytes, target)
				}
			}
		}
	}
}

// TestCubins: the machine code of each module for compute capability 9.0 has the hash in lock.json.
func TestCubins(t *testing.T) {
	text, err := os.ReadFile("lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct{ Cubins map[string]string }
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	if len(lock.Cubins) != len(kernels.Names()) {
		t.Errorf("%d files are locked, there are %d modules", len(lock.Cubins), len(kernels.Names()))
	}
	for _, n := range kernels.Names() {
		code := kernels.Cubin(n, 9, 0)
		sum := sha256.Sum256(code)
		if !strings.HasPrefix(string(code), "\x7fELF") || hex.EncodeToString(sum[:]) != lock.Cubins[n+".sm_90a.cubin.gz"] {
			t.Errorf("%s: %d bytes without the hash in lock.json", n, len(code))
		}
		if kernels.Cubin(n, 8, 0) != nil || kernels.Cubin(n, 9, 1) != nil || kernels.Cubin(n, 10, 0) != nil {
			t.Errorf("%s has machine code for other devices", n)
		}
	}
}

// TestNames: Names lists the embedded modules.
func TestNames(t *testing.T) {
	made, _ := filepath.Glob("*.ptx")
	for i := range made {
		made[i] = strings.TrimSuffix(made[i], ".ptx")
	}
	names := slices.Sorted(slices.Values(kernels.Names()))
	if !slices.Equal(made, names) {
		t.Errorf("%v, want %v", names, made)
	}
	for _, n := range names {
		if _, err := ptxvm.Parse(n, kernels.PTX(n)); err != nil {
			t.Error(err)
		}
	}
}
