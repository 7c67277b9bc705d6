package ptxvm_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/ptxvm"
)

// evaluate runs one instruction on up to three operands of 64 bits, and returns 64 bits.
func evaluate(t *testing.T, instruction string, operands ...uint64) uint64 {
	t.Helper()
	opcode, kinds, _ := strings.Cut(instruction, "$")
	reg := func(i int) string {
		if kinds == "" {
			return "r"
		}
		return strings.Split(kinds, "$")[i]
	}
	var text, names strings.Builder
	fmt.Fprintf(&text, ".visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u64 k_param_1\n)\n{\n\t.reg .b32 \t%%r<9>;\n\t.reg .b64 \t%%d<9>;\n\t.reg .b16 \t%%s<9>;\n")
	text.WriteString("\tld.param.u64 \t%d7, [k_param_0];\n\tld.param.u64 \t%d8, [k_param_1];\n\tmov.u64 \t%d0, 0;\n\tmov.u32 \t%r0, 0;\n")
	load := map[string]string{"r": "u32", "d": "u64", "s": "u16"}
	for i := range operands {
		fmt.Fprintf(&text, "\tld.global.%s \t%%%s%d, [%%d8+%d];\n", load[reg(i+1)], reg(i+1), i+1, 8*i)
		fmt.Fprintf(&names, ", %%%s%d", reg(i+1), i+1)
	}
	fmt.Fprintf(&text, "\t%s \t%%%s0%s;\n\tst.global.%s \t[%%d7], %%%s0;\n\tret;\n}\n", opcode, reg(0), names.String(), load[reg(0)], reg(0))
	m := ptxvm.New(ptxvm.Config{})
	module, err := ptxvm.Parse("k", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewStream()
	to, _ := m.Alloc(8)
	from, _ := m.Alloc(24)
	out := make([]byte, 8)
	in, _ := binary.Append(nil, binary.LittleEndian, append(operands, 0, 0, 0)[:3])
	_ = m.Set(s, to, 0, 8)
	_ = m.CopyIn(s, from, in)
	if err := m.Launch(s, module.Kernel("k"), ptxvm.Launch{Args: pack(to, from)}); err != nil {
		t.Fatal(err)
	}
	_ = m.CopyOut(s, out, to)
	if err := m.SyncStream(s); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(out)
}

func b(x float32) uint64 { return uint64(math.Float32bits(x)) }

// TestInstructions compares instructions with the PTX ISA, at corner cases. The letters after $ are
// the registers' sizes: r is 32 bits, d 64, s 16; without $ all have 32.
func TestInstructions(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	const n1 = 0xffffffff // -1
	for _, c := range []struct {
		op   string
		want uint64
		in   []uint64
	}{
		{"mov.u16$s$s", 0xfffe, []uint64{0xfffffffe}},
		{"add.s32", 0, []uint64{n1, 1}},
		{"sub.s32", n1, []uint64{0, 1}},
		{"add.s64$d$d$d", 0, []uint64{math.MaxUint64, 1}},
		{"mul.lo.s32", 0xfffffffe, []uint64{n1, 2}},
		{"mul.hi.s32", n1, []uint64{n1, 2}},
		{"mul.wide.s32$d$r$r", math.MaxUint64 - 1, []uint64{n1, 2}},
		{"mul.wide.u32$d$r$r", 0x1fffffffe, []uint64{n1, 2}},
		{"mad.lo.s32", 1, []uint64{n1, 2, 3}},
		{"div.s32", 0xfffffffd, []uint64{7, 0xfffffffe}},
		{"rem.s32", 1, []uint64{7, 0xfffffffe}},
		{"rem.s32", n1, []uint64{0xfffffff9, 2}},
		{"div.u32", 0x7fffffff, []uint64{n1, 2}},
		{"rem.u32", 1, []uint64{n1, 2}},
		{"div.u64$d$d$d", 0x7fffffffffffffff, []uint64{math.MaxUint64, 2}},
		{"shl.b32", 0, []uint64{1, 32}},
		{"shl.b32", 1 << 31, []uint64{1, 31}},
		{"shr.u32", 0, []uint64{n1, 32}},
		{"shr.s32", n1, []uint64{1 << 31, 40}},
		{"shl.b64$d$d$r", 1 << 40, []uint64{1, 40}},
		{"shr.u64$d$d$r", 1, []uint64{1 << 40, 40}},
		{"min.s32", n1, []uint64{n1, 1}},
		{"max.s32", 1, []uint64{n1, 1}},
		{"min.u32", 7, []uint64{7, n1}},
		{"popc.b32", 3, []uint64{0x10101}},
		{"not.b32", 0xfffffffe, []uint64{1}},
		{"prmt.b32", 0x44332211, []uint64{0x44332211, 0x88776655, 0x3210}},
		{"cvt.s64.s32$d$r", math.MaxUint64, []uint64{n1}},
		{"cvt.u64.u32$d$r", n1, []uint64{n1}},
		{"cvt.u32.u64$r$d", 5, []uint64{1<<40 + 5}},
		{"cvt.rzi.s32.f32", 0xfffffffe, []uint64{b(-2.9)}},
		{"cvt.rzi.s32.f32", 0x7fffffff, []uint64{b(inf)}},
		{"cvt.rzi.s32.f32", 0, []uint64{b(nan)}},
		{"cvt.rni.u64.f32$d$r", 2, []uint64{b(2.5)}},
		{"cvt.rni.u64.f32$d$r", 0, []uint64{b(-3)}},
		{"cvt.rpi.u64.f64$d$d", 3, []uint64{math.Float64bits(2.0000001)}},
		{"cvt.rn.f64.u64$d$d", math.Float64bits(1 << 63), []uint64{1<<63 + 1}},
		{"cvt.rn.f32.s32", b(-16777216), []uint64{0xfeffffff}}, // -2^24 - 1: to even
		{"cvt.rn.f32.u32", b(4294967296), []uint64{n1}},
		{"cvt.f32.f16$r$s", b(-1.5), []uint64{0xbe00}},
		{"cvt.f32.f16$r$s", b(0x1p-24), []uint64{1}}, // subnormal
		{"cvt.f64.f32$d$r", math.Float64bits(0.5), []uint64{b(0.5)}},
		{"mul.rn.f64$d$d$d", math.Float64bits(0.25), []uint64{math.Float64bits(0.5), math.Float64bits(0.5)}},
		{"cvt.rn.bf16.f32$s$r", 0x3f80, []uint64{0x3f808000}}, // a tie, to even
		{"cvt.rn.bf16.f32$s$r", 0x3f82, []uint64{0x3f818000}},
		{"cvt.rn.bf16.f32$s$r", 0x7f80, []uint64{0x7f7fffff}}, // beyond the largest
		{"cvt.rn.bf16.f32$s$r", 0x7fff, []uint64{b(nan)}},
		{"cvt.rn.bf16x2.f32", 0x3f804000, []uint64{b(1), b(2)}},
		{"add.rn.f32", 0x7fffffff, []uint64{b(inf), b(-inf)}},
		{"max.f32", b(1), []uint64{b(nan), b(1)}},
		{"min.f32", b(-2), []uint64{b(-2), b(1)}},
		{"min.f32", b(1), []uint64{b(nan), b(1)}},
		{"max.f32", b(0), []uint64{b(float32(math.Copysign(0, -1))), b(0)}},
		{"div.rn.f32", b(1.0 / 3), []uint64{b(1), b(3)}},
		{"sqrt.rn.f32", b(math.Sqrt2), []uint64{b(2)}},
		{"neg.f32", b(-1), []uint64{b(1)}},
	} {
		if got := evaluate(t, c.op, c.in...); got != c.want {
			t.Errorf("%s of %#x is %#x, want %#x", c.op, c.in, got, c.want)
		}
	}
}

// TestInstructionsOfBytes checks instructions on pairs of registers and on single bytes.
func TestInstructionsOfBytes(t *testing.T) {
	// A pair of registers: the halves, joined the other way round.
	if got := evaluate(t, "mov.b64 {%r1,%r2}, %d1;\n\tmov.b64 %d1, {%r2,%r1};\n\tmov.u64$d$d", 0x1111111122222222); got != 0x2222222211111111 {
		t.Errorf("swapped halves: %#x", got)
	}
	for op, want := range map[string]uint64{"mul.wide.u16$r$s$s": 0xfffe0001, "mul.lo.s16$s$s$s": 1, "sub.s16$s$s$s": 0, "shl.b16$s$s$s": 0} {
		if got := evaluate(t, op, 0x1ffff, 0xffff); got != want {
			t.Errorf("%s: %#x, want %#x", op, got, want)
		}
	}
	// The table of lop3: of 0xea, a & b | c; of 0x96, a ^ b ^ c; of 0x10, a without b and c.
	for table, want := range map[string]uint64{"0xEA": 0xfa, "0x96": 0x5a ^ 0xfc ^ 0xaa, "0x10": 0x5a &^ 0xfc &^ 0xaa} {
		if got := evaluate(t, "lop3.b32 %r1, %r1, %r2, %r3, "+table+";\n\tmov.b32 %r3, 0x3210;\n\tprmt.b32", 0x5a, 0xfc, 0xaa); got != want {
			t.Errorf("lop3 %s: %#x, want %#x", table, got, want)
		}
	}
	// Bit 3 of a selector fills the byte with its sign.
	if got := evaluate(t, "prmt.b32", 0x44332211, 0x88776655, 0xf3); got != 0x1111ff44 {
		t.Errorf("prmt with a sign: %#x", got)
	}
}

// TestFMARoundsOnce compares fma with exact arithmetic.
func TestFMARoundsOnce(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		x, y := float32(g.NormFloat64()), float32(g.NormFloat64())
		z := float32(-float64(x)*float64(y)) * (1 + float32(g.IntN(3)-1)*0x1p-23) // cancels nearly all
		exact := new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		want, _ := exact.Add(exact, big.NewFloat(float64(z))).Float32()
		if got := evaluate(t, "fma.rn.f32", b(x), b(y), b(z)); got != b(want) {
			t.Fatalf("fma(%v,%v,%v) is %v, want %v", x, y, z, math.Float32frombits(uint32(got)), want)
		}
	}
}
