package ptxvm_test

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// bench has a machine with the kernels of testdata.
type bench struct {
	t      testing.TB
	m      *ptxvm.Machine
	s      ptxvm.Stream
	module *ptxvm.Module
}

func newBench(t testing.TB, c ptxvm.Config) *bench {
	t.Helper()
	text, err := os.ReadFile("testdata/faults.ptx")
	if err != nil {
		t.Fatal(err)
	}
	m := ptxvm.New(c)
	module, err := ptxvm.Parse("faults.ptx", text)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, m, m.NewStream(), module}
}

// words allocates n words of device memory with values 0, 1, 2, ….
func (b *bench) words(n int) uint64 {
	b.t.Helper()
	data := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i))
	}
	p := b.room(n)
	if err := b.m.CopyIn(b.s, p, data); err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) room(words int) uint64 {
	b.t.Helper()
	p, err := b.m.Alloc(4 * words)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func pack(values ...any) []byte {
	var b []byte
	for _, v := range values {
		for len(b)%binary.Size(v) != 0 {
			b = append(b, 0)
		}
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// queue launches a kernel without waiting.
func (b *bench) queue(s ptxvm.Stream, kernel string, blocks, threads int, args ...any) {
	b.t.Helper()
	l := ptxvm.Launch{Grid: ptxvm.Dim{X: blocks}, Block: ptxvm.Dim{X: threads}, Args: pack(args...)}
	if err := b.m.Launch(s, b.module.Kernel(kernel), l); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) run(kernel string, blocks, threads int, args ...any) error {
	b.t.Helper()
	b.queue(b.s, kernel, blocks, threads, args...)
	return b.m.SyncStream(b.s)
}

// TestFaults checks that each planted fault is reported with kind and source line, and that the same
// kernel runs without it.
func TestFaults(t *testing.T) {
	run := func(kernel string, threads int, arg int32) func(b *bench) error {
		return func(b *bench) error { return b.run(kernel, 1, threads, b.room(128), b.words(128), arg) }
	}
	for _, c := range []struct {
		name  string
		kind  ptxvm.FaultKind
		line  string // of the source
		good  func(b *bench) error
		wrong func(b *bench) error
	}{
		{"wrong stride", ptxvm.OutOfBounds, "from[threadIdx.x * stride]", run("copy_words", 64, 1), run("copy_words", 64, 3)},
		{"misaligned", ptxvm.Misaligned, "from + offset", run("misaligned", 8, 16), run("misaligned", 8, 4)},
		{"removed barrier", ptxvm.SharedRace, "s[threadIdx.x] = from[threadIdx.x]", run("reverse", 64, 1), run("reverse", 64, 0)},
		{"removed second barrier", ptxvm.SharedRace, "s[63 - threadIdx.x]", run("overwrite", 64, 1), run("overwrite", 64, 0)},
		{"half a warp at a barrier", ptxvm.Divergence, "__syncthreads", run("divergent", 64, 64), run("divergent", 64, 48)},
		{"half a warp shuffles", ptxvm.Divergence, "__shfl_xor_sync", run("lonely_shuffle", 64, 32), run("lonely_shuffle", 64, 16)},
		{"uncommitted copy", ptxvm.PendingCopy, "= s[threadIdx.x]", run("staged", 32, 0), run("staged", 32, 1)},
		{"copy not waited for", ptxvm.PendingCopy, "= s[threadIdx.x]", run("staged", 32, 0), run("staged", 32, 2)},
		{"unwritten shared memory", ptxvm.Uninitialised, "to[threadIdx.x] = s[threadIdx.x]",
			func(b *bench) error { return b.run("unwritten", 1, 32, b.room(32), int32(0)) },
			func(b *bench) error { return b.run("unwritten", 1, 32, b.room(32), int32(5)) }},
		{"unwritten global memory", ptxvm.Uninitialised, "from[threadIdx.x * stride]", run("copy_words", 64, 1),
			func(b *bench) error { return b.run("copy_words", 1, 64, b.room(64), b.room(64), int32(1)) }},
		{"two blocks write a word", ptxvm.BlockRace, "to[(int)blockIdx.x % blocks]",
			func(b *bench) error { return b.run("same_word", 4, 32, b.room(4), int32(4)) },
			func(b *bench) error { return b.run("same_word", 4, 32, b.room(4), int32(3)) }},
		{"division by zero", ptxvm.Arithmetic, "a / b",
			func(b *bench) error { return b.run("divide", 1, 32, b.room(32), int32(7), int32(2)) },
			func(b *bench) error { return b.run("divide", 1, 32, b.room(32), int32(7), int32(0)) }},
		{"freed memory", ptxvm.OutOfBounds, "from[threadIdx.x * stride]", run("copy_words", 64, 1),
			func(b *bench) error {
				from := b.words(64)
				if err := b.m.Free(from); err != nil {
					b.t.Fatal(err)
				}
				return b.run("copy_words", 1, 64, b.room(64), from, int32(1))
			}},
		{"endless", ptxvm.Endless, "while (x)",
			func(b *bench) error { return b.run("endless", 1, 1, b.words(1)) },
			func(b *bench) error { return b.run("endless", 1, 1, b.words(2)+4) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := ptxvm.Config{MaxInstructions: 1 << 16}
			if err := c.good(newBench(t, config)); err != nil {
				t.Errorf("without the fault: %v", err)
			}
			b := newBench(t, config)
			err := c.wrong(b)
			var f *ptxvm.Fault
			if !errors.As(err, &f) || f.Kind != c.kind {
				t.Fatalf("%v, want: %v", err, c.kind)
			}
			if line := sourceLine(t, f); !strings.Contains(line, c.line) {
				t.Errorf("%v: the line is %q, want one with %q", err, line, c.line)
			}
			if _, err := b.m.Alloc(16); !errors.Is(err, f) {
				t.Errorf("after a fault: %v, want the same fault", err)
			}
		})
	}
}

func sourceLine(t *testing.T, f *ptxvm.Fault) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + f.File)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")[f.Line-1]
}

// TestReport checks the full text of a fault.
func TestReport(t *testing.T) {
	b := newBench(t, ptxvm.Config{})
	err := b.run("misaligned", 1, 8, b.room(64), b.words(64), int32(4))
	const want = "ptxvm: misaligned access in misaligned, faults.cu:9, block (0,0,0) thread (0,0,0): global address "
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "(ld.global.v4.u32") {
		t.Errorf("%v, want %s…", err, want)
	}
}

// TestUnknown checks that Parse names instructions and operands that it does not support.
func TestUnknown(t *testing.T) {
	const head = ".visible .entry k(\n\t.param .u64 k_param_0\n)\n{\n\t.reg .b32 \t%r<4>;\n"
	for _, c := range []struct{ text, want string }{
		{head + "\tbrev.b32 \t%r1, %r2;\n\tret;\n}\n", "x:6: brev.b32 \t%r1, %r2: unknown instruction"},
		{head + "\tadd.s32 \t%r1, %q2, 3;\n\tret;\n}\n", "unknown register %q2"},
		{head + "\tadd.s32 \t%r1, %r2;\n\tret;\n}\n", "2 operands, want 3"},
		{head + "\tshfl.sync.bfly.b32;\n\tret;\n}\n", "0 operands, want 5"},
		{head + "\tbra \t$nowhere;\n\tret;\n}\n", "no such label"},
		{head + "\tld.local.u32 \t%r1, [%r2];\n\tret;\n}\n", "unknown instruction"},
		{".const .u32 x;\n", "unknown directive"},
	} {
		if _, err := ptxvm.Parse("x", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// TestLaunchLimits checks that launches beyond a device's limits are refused before they run.
func TestLaunchLimits(t *testing.T) {
	b := newBench(t, ptxvm.Config{})
	k := b.module.Kernel("copy_words")
	good := pack(b.room(64), b.words(64), int32(1))
	for _, l := range []ptxvm.Launch{
		{Block: ptxvm.Dim{X: 65}, Args: good},
		{Block: ptxvm.Dim{X: 64}, Args: good[:16]},
		{Block: ptxvm.Dim{X: 64}, Args: good, SharedBytes: 228 << 10},
		{Block: ptxvm.Dim{X: 64}, Grid: ptxvm.Dim{Y: 65536}, Args: good},
	} {
		if err := b.m.Launch(b.s, k, l); !errors.Is(err, ptxvm.ErrLaunch) {
			t.Errorf("%+v: %v, want ErrLaunch", l, err)
		}
	}
	if err := b.m.Launch(b.s, k, ptxvm.Launch{Block: ptxvm.Dim{X: 64}, Args: good, SharedBytes: 227 << 10}); err != nil {
		t.Error(err)
	}
}

// TestWarpBarrierIsOfAWarp checks that a barrier of a warp does not order threads of different warps.
func TestWarpBarrierIsOfAWarp(t *testing.T) {
	b := newBench(t, ptxvm.Config{})
	text, err := os.ReadFile("testdata/faults.ptx")
	if err != nil {
		t.Fatal(err)
	}
	weak, err := ptxvm.Parse("weak", []byte(strings.ReplaceAll(string(text), "bar.sync \t0", "bar.warp.sync -1")))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []*ptxvm.Module{b.module, weak} {
		l := ptxvm.Launch{Grid: ptxvm.Dim{X: 1}, Block: ptxvm.Dim{X: 64}, Args: pack(b.room(64), b.words(64), int32(1))}
		if err := b.m.Launch(b.s, module.Kernel("reverse"), l); err != nil {
			t.Fatal(err)
		}
		var f *ptxvm.Fault
		if err := b.m.SyncStream(b.s); (err != nil) != (module == weak) || err != nil && (!errors.As(err, &f) || f.Kind != ptxvm.SharedRace) {
			t.Errorf("by warps %v: %v", module == weak, err)
		}
	}
}
