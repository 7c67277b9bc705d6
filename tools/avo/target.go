package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// target is a level of instruction sets, with vectors of lanes f32.
type target struct {
	name     string
	lanes    int
	features []string // that a kernel may use
	vnni     bool     // one instruction adds the products of four bytes, one factor unsigned
	vexDot   bool     // that instruction is written in its VEX form
	consts   Mem      // table of constants, each as wide as the widest vector
	known    map[string]int
}

func (t *target) wide() bool { return t.lanes == 16 }

// bytes returns the size of a vector.
func (t *target) bytes() int { return 4 * t.lanes }

func (t *target) vector() reg.VecVirtual {
	if t.wide() {
		return ZMM()
	}
	return YMM()
}

func (t *target) vectors(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = t.vector()
	}
	return v
}

func (t *target) zero(v reg.VecVirtual) { t.xor(v, v, v) }

func (t *target) move(from, to Op) {
	if t.wide() {
		VMOVDQU64(from, to)
	} else {
		VMOVDQU(from, to)
	}
}

func (t *target) and(mask Op, src, dst reg.VecVirtual) {
	if t.wide() {
		VPANDD(mask, src, dst)
	} else {
		VPAND(mask, src, dst)
	}
}

func (t *target) xor(mask Op, src, dst reg.VecVirtual) {
	if t.wide() {
		VPXORD(mask, src, dst)
	} else {
		VPXOR(mask, src, dst)
	}
}

// text begins a function. It calls no other function and so needs no check of the stack. signature
// is the function's, without func and name; doc ends the comment of the stub.
func (t *target) text(name, signature, doc string) {
	TEXT(name+t.name, attr.NOSPLIT, "func"+signature)
	Pragma("noescape")
	Doc(name + t.name + " " + doc)
}

// end generates the end of a function that has used vectors.
func end() {
	VZEROUPPER()
	RET()
}

// loop generates body and its repetition: n counts down by step to 0.
func loop(label string, n reg.Register, step int, body func()) {
	Label(label)
	body()
	if step == 1 {
		DECQ(n)
	} else {
		SUBQ(I32(step), n)
	}
	JNZ(LabelRef(label))
}

// sixteens generates a loop over n elements of 4 bytes, 16 at a time: body for each vector i of them,
// which is disp bytes after the pointers.
func (t *target) sixteens(label string, n reg.Register, body func(i, disp int), pointers ...reg.Register) {
	loop(label, n, 16, func() {
		for i := range 16 / t.lanes {
			body(i, i*t.bytes())
		}
		advance(64, pointers...)
	})
}

// advance generates the addition of n bytes to pointers.
func advance(n int, pointers ...reg.Register) {
	for _, p := range pointers {
		ADDQ(I32(n), p)
	}
}

// start generates the first values of accumulators: zeros if parameter first is set, else what load
// loads. Label next must follow.
func (t *target) start(acc []reg.VecVirtual, next string, load func()) {
	first := Load(Param("first"), GP64())
	TESTQ(first, first)
	JZ(LabelRef("goOn"))
	for _, v := range acc {
		t.zero(v)
	}
	JMP(LabelRef(next))
	Label("goOn")
	load()
}

// reduce generates the combination of all lanes of v by packed, for vectors, and single, for one lane.
// It returns the register whose first lane has the result.
func (t *target) reduce(v reg.VecVirtual, packed, single func(ops ...Op)) reg.Register {
	if t.wide() {
		upper := YMM()
		VEXTRACTF64X4(U8(1), v, upper)
		packed(upper, v.AsY(), v.AsY())
	}
	four, other := v.AsX(), XMM()
	VEXTRACTF128(U8(1), v.AsY(), other)
	packed(other, four, four)
	VUNPCKHPD(four, four, other)
	packed(other, four, four)
	VMOVSHDUP(four, other)
	single(other, four, four)
	return four
}

// row returns the address disp bytes into row r of a matrix whose rows are stride bytes apart.
// base points to row 0 and third to row 3.
func row(base, third, stride reg.Register, r, disp int) Mem {
	if r >= 3 {
		base, r = third, r-3
	}
	m := Mem{Base: base, Disp: disp}
	if r > 0 {
		m.Index, m.Scale = stride, uint8(r)
	}
	return m
}

// constant returns the address of a constant, repeated over a whole vector. The first use generates the
// table, which must have every constant.
func (t *target) constant(name string) Mem {
	if t.known == nil {
		t.table()
	}
	i, ok := t.known[name]
	if !ok {
		panic(fmt.Sprintf("avo: no constant %q", name))
	}
	return t.consts.Offset(i * t.bytes())
}

// table generates the table of constants: those of Exp32 in internal/f32, under the same names, and
// masks.
func (t *target) table() {
	float := func(x float64) uint32 { return math.Float32bits(float32(x)) }
	entries := []struct {
		name string
		bits uint32
	}{
		{"log2e", float(1.44269504)}, {"round", float(12582912)},
		{"-ln2Hi", float(-0.693359375)}, {"-ln2Lo", float(2.12194440e-4)},
		{"1/720", float(1.0 / 720)}, {"1/120", float(1.0 / 120)}, {"1/24", float(1.0 / 24)},
		{"1/6", float(1.0 / 6)}, {"1/2", float(0.5)}, {"1", float(1)},
		{"lowest", float(-87)}, {"highest", float(88.72283)},
		{"inf", float(math.Inf(1))}, {"-inf", float(math.Inf(-1))},
		{"int 126", 126}, {"int 1", 1}, {"sign", 1 << 31}, {"upper", 0xffff0000},
		{"nibbles", 0x0f0f0f0f}, {"1 high", 0x10101010}, {"2 high", 0x30303030}, {"int16 ones", 0x00010001}, {"byte signs", 0x80808080},
		{"magnitude", 1<<31 - 1}, {"127", float(127)}, {"int 127", 127}, {"int -127", 1<<32 - 127},
	}
	t.known = map[string]int{}
	t.consts = GLOBL("constants"+t.name, attr.RODATA|attr.NOPTR)
	for i, e := range entries {
		t.known[e.name] = i
		for lane := range t.lanes {
			DATA(i*t.bytes()+4*lane, U32(e.bits))
		}
	}
	t.known["unpacked"] = len(entries)
	for lane := range t.lanes {
		DATA(len(entries)*t.bytes()+4*lane, U32([]uint32{0, 4, 1, 5, 2, 6, 3, 7}[lane%8]))
	}
}
