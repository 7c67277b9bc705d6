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
)

// TestLock: sources and PTX are those that the compiler has seen and made, here
// and among the interpreter's tests. That it makes them again is for CI to see,
// by tools/cuda.
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
		sources, _ := filepath.Glob(filepath.Join(dir, "*.cu*"))
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
					t.Errorf("%s is not as lock.json has it: run tools/cuda build", path)
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

// TestNames: what is embedded is what Names has.
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
		if _, err := newRig(t).m.Load(n, kernels.PTX(n)); err != nil {
			t.Error(err)
		}
	}
}
