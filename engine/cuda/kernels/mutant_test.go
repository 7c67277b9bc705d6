package kernels_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// mutant returns a copy of a module in which one line of a kernel is changed: of the lines that
// begin with old, number nth, from 0, has to in its place. It returns nil if there are fewer such
// lines.
func mutant(t *testing.T, module, kernel, old, to string, nth int) *ptxvm.Module {
	t.Helper()
	text := kernels.PTX(module)
	from := bytes.Index(text, []byte(".entry "+kernel+"("))
	if from < 0 {
		t.Fatalf("no kernel %s", kernel)
	}
	lines := strings.SplitAfter(string(text[from:]), "\n")
	for i, line := range lines {
		if line == "}\n" {
			return nil
		}
		if !strings.HasPrefix(strings.TrimSpace(line), old) {
			continue
		}
		if nth--; nth < 0 {
			lines[i] = strings.Replace(line, old, to, 1)
			m, err := ptxvm.Parse(module, []byte(string(text[:from])+strings.Join(lines, "")))
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	return nil
}

// caught runs the mutants of a kernel, each with one line replaced. Each must end with a fault of one
// of the kinds, and there must be at least atLeast mutants.
func caught(t *testing.T, module, kernel, old, to string, atLeast int, run func(r *rig) error, kinds ...ptxvm.FaultKind) {
	t.Helper()
	n := 0
	for ; ; n++ {
		m := mutant(t, module, kernel, old, to, n)
		if m == nil {
			break
		}
		r := newRig(t, module)
		r.changed = m
		err := run(r)
		var f *ptxvm.Fault
		if !errors.As(err, &f) || !bytes.Contains([]byte(fmt.Sprint(kinds)), []byte(f.Kind.String())) {
			t.Errorf("%s without its %q number %d: %v, want %v", kernel, old, n, err, kinds)
		}
	}
	if n < atLeast {
		t.Errorf("%s has %d of %q, want %d", kernel, n, old, atLeast)
	}
}

// try runs the product without reading its result.
func (p *product) try(r *rig, g *kernels.GEMM) error {
	return r.tryProduct(g, r.room(4*p.rows*p.columns), put(r, p.a), put(r, p.w), put(r, p.bias), p.rows, p.columns, p.inner, toF32, pointer(0))
}

// TestGEMMMutants checks that the interpreter reports a product without any one of its barriers,
// commits and waits.
func TestGEMMMutants(t *testing.T) {
	for _, rows := range []int{16, 128} {
		p, g := newProduct(6, rows, 128, 512), kernels.GEMMFor(rows)
		run := func(r *rig) error { return p.try(r, g) }
		if err := run(newRig(t, "gemm")); err != nil {
			t.Fatal(err)
		}
		caught(t, "gemm", g.Name, "bar.sync", "// bar.sync", 2, run, ptxvm.SharedRace, ptxvm.PendingCopy, ptxvm.Uninitialised)
		caught(t, "gemm", g.Name, "cp.async.commit_group", "// cp", 1, run, ptxvm.PendingCopy)
	}
}

// TestOrderOfSums checks that products with another order of sums are near but have other bits, so
// that tests of bits catch them.
func TestOrderOfSums(t *testing.T) {
	text, err := os.ReadFile("../ptxvm/testdata/faults.ptx")
	if err != nil {
		t.Fatal(err)
	}
	p := newProduct(7, 1, 64, 256)
	p.bias = make([]float32, p.columns)
	r := newRig(t, "gemm")
	right := p.f32(r, kernels.GEMMFor(1))
	other, err := ptxvm.Parse("faults", text)
	if err != nil {
		t.Fatal(err)
	}
	a, w := put(r, p.a), put(r, p.w)
	for kernel, tail := range map[string][]any{"gemv": {int32(p.inner)}, "gemv_sliced": {int32(p.inner), int32(8)}} {
		c := r.room(4 * p.columns)
		l := ptxvm.Launch{Grid: ptxvm.Dim{X: p.columns}, Block: ptxvm.Dim{X: 32}, Args: args(append([]any{c, a, w}, tail...)...)}
		if err := r.m.Launch(r.s, other.Kernel(kernel), l); err != nil {
			t.Fatal(err)
		}
		got := get[float32](r, c, p.columns)
		near(t, kernel, wide(got), p.reference(), 1e-6)
		differ := 0
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(right[i]) {
				differ++
			}
		}
		if differ < p.columns/4 {
			t.Errorf("%s: %d of %d sums differ from those of mma: the interpreter does not distinguish them", kernel, differ, p.columns)
		}
	}
}

// TestArgs checks the layout of parameters.
func TestArgs(t *testing.T) {
	if got, want := args(int32(1), pointer(2), int32(3)), 20; len(got) != want || binary.LittleEndian.Uint64(got[8:]) != 2 {
		t.Errorf("%d bytes: %v", len(got), got)
	}
}
