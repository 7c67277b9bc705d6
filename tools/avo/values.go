package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// values generates the addition of one page's weighted values to the heads' outputs. It computes two
// heads at a time, so that their chains of multiply-adds hide each other's latency.
func (t *target) values() {
	t.text("values", "(out, w *float32, wStride int, v *float32, n, dim, group int)",
		"adds Σ_p w[g][p]·v[p] to out[g], ascending; out is [group][dim], v is [n][dim], wStride is in bytes.")
	out, w := Load(Param("out"), GP64()), Load(Param("w"), GP64())
	stride := Load(Param("dim"), GP64())
	SHLQ(U8(2), stride)
	group := Load(Param("group"), GP64())
	for _, heads := range []int{2, 1} {
		next := fmt.Sprintf("heads%d", heads)
		Label(next)
		CMPQ(group, I32(heads))
		JL(LabelRef("end" + next))
		w2, v, left := GP64(), Load(Param("v"), GP64()), GP64()
		MOVQ(w, w2)
		if heads == 2 {
			ADDQ(t.param("wStride"), w2)
		}
		MOVQ(stride, left)
		for _, slab := range []int{4, 16 / t.lanes} {
			name := fmt.Sprintf("%sslab%d", next, slab)
			Label(name)
			CMPQ(left, I32(slab*t.bytes()))
			JL(LabelRef("end" + name))
			t.slab(name, heads, slab, out, w, w2, v, stride)
			advance(slab*t.bytes(), out, v)
			SUBQ(I32(slab*t.bytes()), left)
			JMP(LabelRef(name))
			Label("end" + name)
		}
		if heads == 2 { // out has been advanced by one head
			ADDQ(stride, out)
		}
		MOVQ(w2, w)
		ADDQ(t.param("wStride"), w)
		SUBQ(I32(heads), group)
		JMP(LabelRef(next))
		Label("end" + next)
	}
	end()
}

// slab generates some columns of one or two heads over all positions.
func (t *target) slab(name string, heads, vectors int, out, w, w2, v, stride reg.Register) {
	acc, x, weight := t.vectors(heads*vectors), t.vectors(vectors), t.vectors(heads)
	at := func(h, i int) Mem {
		m := Mem{Base: out, Disp: i * t.bytes()}
		if h > 0 {
			m.Index, m.Scale = stride, 1
		}
		return m
	}
	for h := range heads {
		for i := range vectors {
			VMOVUPS(at(h, i), acc[h*vectors+i])
		}
	}
	cur, p := GP64(), GP64()
	MOVQ(v, cur)
	XORQ(p, p)
	Label(name + "step")
	VBROADCASTSS(Mem{Base: w, Index: p, Scale: 4}, weight[0])
	if heads == 2 {
		VBROADCASTSS(Mem{Base: w2, Index: p, Scale: 4}, weight[1])
	}
	for i := range vectors {
		VMOVUPS(Mem{Base: cur, Disp: i * t.bytes()}, x[i])
		for h := range heads {
			VFMADD231PS(x[i], weight[h], acc[h*vectors+i])
		}
	}
	ADDQ(stride, cur)
	INCQ(p)
	CMPQ(p, t.param("n"))
	JL(LabelRef(name + "step"))
	for h := range heads {
		for i := range vectors {
			VMOVUPS(acc[h*vectors+i], at(h, i))
		}
	}
}
