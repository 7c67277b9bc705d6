package main

import "fmt"

// scores generates the computation of scale·(q_g · k_p) for the positions p of one page and each query
// head g. The elements of a vector are elements of the head; they are added in the order of Tree16. Two
// heads by two positions share their loads, one head takes four positions.
func (a *assembly) scores() {
	k := a.kernel("scores", "(dst *float32, dstStride int, q, k *float32, n, dim, group int, scale float32)",
		"writes scale·(q_g·k_p) to dst[g][p]; q is [group][dim], k is [n][dim], dstStride is in bytes.")
	s := &scores{kernel: k, dst: k.load("dst"), dstStride: k.load("dstStride"), q: k.load("q"), dim: k.load("dim"), group: k.load("group")}
	s.stride, s.scale = k.reg(), k.vector()
	k.op("LSL $2, %v, %v", s.dim, s.stride)
	k.op("LSR $4, %v, %v", s.dim, s.dim)
	k.op("FMOVS %s, F%d", k.param("scale"), s.scale)
	for _, heads := range []int{2, 1} {
		name := fmt.Sprintf("heads%d", heads)
		k.while(name, s.group, heads, func() {
			n, key, at := k.load("n"), k.load("k"), []reg{k.copied(s.dst)}
			if heads == 2 {
				second := k.reg()
				k.op("ADD %v, %v, %v", s.dstStride, s.dst, second)
				at = append(at, second)
			}
			for _, positions := range []int{4 / heads, 1} {
				of := fmt.Sprintf("%sby%d", name, positions)
				k.while(of, n, positions, func() { s.block(of, at, key, positions) })
			}
			for range heads {
				k.op("ADD %v, %v, %v", s.dstStride, s.dst, s.dst)
				k.op("ADD %v, %v, %v", s.stride, s.q, s.q)
			}
		})
	}
	k.end()
}

// scores is the kernel of that name in the making.
type scores struct {
	*kernel
	dst, dstStride, q, dim, group, stride reg // dim counts in sixteens
	scale                                 vec
}

// block writes the scores of some positions for as many heads as at has pointers to results. It advances
// the pointers and key.
func (s *scores) block(name string, at []reg, key reg, positions int) {
	chunks, q, k := s.copied(s.dim), s.rows(s.q, s.stride, len(at)), s.rows(key, s.stride, positions)
	acc, x, y := s.vectors(4*len(at)*positions), s.vectors(4*len(at)), s.vectors(4)
	chunk := func(multiply func(d, n, m vec)) {
		for i, q := range q {
			s.ld1(x[4*i:][:4], q)
		}
		for p, k := range k {
			s.ld1(y, k)
			for i := range q {
				for j, y := range y {
					multiply(acc[4*(i*positions+p)+j], x[4*i+j], y)
				}
			}
		}
	}
	chunk(s.fmul)
	s.op("SUBS $1, %v, %v", chunks, chunks)
	s.op("BEQ %sTree", name)
	s.loop(name+"Chunk", chunks, 1, func() { chunk(s.fmla) })
	s.label(name + "Tree")
	sums := s.trees(acc, x)
	s.fmulLane(sums, sums, s.scale, 0)
	for i, at := range at {
		s.store(sums, i*positions, positions, at)
	}
	s.op("MOVD %v, %v", k[len(k)-1], key) // which the last row has been read up to
}

// trees writes Tree16 of up to four sums, four vectors each, and returns the vector of the results. free
// has at least two vectors.
func (s *scores) trees(acc, free []vec) vec {
	var fours []vec
	for i := 0; i < len(acc); i += 4 {
		v := acc[i : i+4]
		s.fadd(v[0], v[0], v[2]) // v[i] + v[i+8]
		s.fadd(v[1], v[1], v[3])
		s.fadd(v[0], v[0], v[1]) // + v[i+4]
		fours = append(fours, v[0])
	}
	for len(fours) < 4 { // repeats what nobody reads
		fours = append(fours, fours...)
	}
	for i := range 2 { // + v[i+2]
		a, b := fours[2*i], fours[2*i+1]
		s.zip1D(free[2*i], a, b)
		s.zip2D(free[2*i+1], a, b)
		s.fadd(free[2*i], free[2*i], free[2*i+1])
	}
	s.faddp(free[0], free[0], free[2]) // + v[i+1]
	return free[0]
}

// store writes n lanes of v, from lane first on, and advances the pointer.
func (s *scores) store(v vec, first, n int, at reg) {
	switch n {
	case 4:
		s.op("FMOVQ.P F%d, 16(%v)", v, at)
	case 2:
		s.op("VST1.P V%d.D[%d], 8(%v)", v, first/2, at)
	case 1:
		s.op("VST1.P V%d.S[%d], 4(%v)", v, first, at)
	}
}

// values generates the addition of one page's weighted values to the heads' outputs. Up to four heads
// share the loads of values, and fewer heads take more columns at a time, so that enough chains of
// multiply-adds hide each other's latency.
func (a *assembly) values() {
	k := a.kernel("values", "(out, w *float32, wStride int, v *float32, n, dim, group int)",
		"adds Σ_p w[g][p]·v[p] to out[g], ascending; out is [group][dim], v is [n][dim], wStride is in bytes.")
	s := &values{kernel: k, out: k.load("out"), w: k.load("w"), wStride: k.load("wStride"), stride: k.load("dim"), group: k.load("group")}
	k.op("LSL $2, %v, %v", s.stride, s.stride)
	for _, shape := range []struct {
		heads int
		slabs []int // vectors of columns
	}{{4, []int{4}}, {3, []int{4}}, {2, []int{8, 4}}, {1, []int{16, 4}}} {
		name := fmt.Sprintf("heads%d", shape.heads)
		k.while(name, s.group, shape.heads, func() {
			v, left := k.load("v"), k.copied(s.stride)
			for _, vectors := range shape.slabs {
				of := fmt.Sprintf("%sby%d", name, vectors)
				k.while(of, left, 16*vectors, func() {
					s.slab(of, shape.heads, vectors, v)
					k.advance(16*vectors, s.out, v)
				})
			}
			for i := range shape.heads {
				if i > 0 { // out has been advanced by one head
					k.op("ADD %v, %v, %v", s.stride, s.out, s.out)
				}
				k.op("ADD %v, %v, %v", s.wStride, s.w, s.w)
			}
		})
	}
	k.end()
}

// values is the kernel of that name in the making.
type values struct {
	*kernel
	out, w, wStride, stride, group reg
}

// slab writes some columns of some heads over all positions.
func (s *values) slab(name string, heads, vectors int, v reg) {
	acc, weight, x := s.vectors(heads*vectors), s.vectors(heads), s.vectors(4)
	n, row, step := s.load("n"), s.copied(v), s.reg()
	w := s.rows(s.w, s.wStride, heads)
	s.op("SUB $%d, %v, %v", 16*(vectors-4), s.stride, step) // from the last load of a row to the next row
	eachOut := func(do func(v []vec, at reg)) {
		s.kernel.block(func() {
			for h, at := range s.rows(s.out, s.stride, heads) {
				for i := 0; i < vectors; i += 4 {
					do(acc[h*vectors+i:][:4], at)
				}
			}
		})
	}
	eachOut(s.ld1)
	position := func(lane int) {
		for i := 0; i < vectors; i += 4 {
			if i+4 < vectors {
				s.ld1(x, row)
			} else {
				s.ld1Step(x, row, step)
			}
			for h := range heads {
				for j, x := range x {
					s.fmlaLane(acc[h*vectors+i+j], x, weight[h], lane)
				}
			}
		}
	}
	s.while(name+"Quads", n, 4, func() {
		for h, w := range w {
			s.ldrNext(weight[h], w)
		}
		for lane := range 4 {
			position(lane)
		}
	})
	s.while(name+"Singles", n, 1, func() {
		for h, w := range w {
			s.ldrSingle(weight[h], w)
		}
		position(0)
	})
	eachOut(s.st1)
}
