package main

import (
	"fmt"
	"math/bits"
)

// A panel of float weights is [k/4][64/16][4][16]: of four k after one another, the first sixteen columns
// of each, then the next sixteen. So a tile of sixteen columns reads whole cache lines, and one of all
// columns reads a single stream. k is rounded up to a multiple of four.
const (
	quad     = 4 // k in a block of a panel
	columns  = 64
	together = 16 // columns in a part of a block
)

// tiles lists the shapes of tiles: rows of activations by groups of sixteen columns. The largest fills
// the registers: 24 accumulators, six rows' activations of four k, and two for weights. Fewer than eight
// accumulators wait for one another, so tiles of few rows are wider.
var tiles = []struct{ rows, groups int }{{6, 1}, {5, 1}, {4, 1}, {3, 2}, {2, 2}, {1, 4}}

// product is a tile in the making.
type product struct {
	*kernel
	kind        string
	activations int // rows of them
	groups      int
	rowBytes    int   // of sixteen columns of one k
	a           []reg // by row
	w           reg
	acc, x      []vec // acc is [row][group][4]
	spare       []vec // for weights
}

// gemm generates the product of a tile: rows rows of activations by groups of columns of a panel, added
// to out. Each element is one chain of fused multiply-adds over ascending k. It starts at zero if first
// is set, else at out's value. kind is the type of the weights.
func (a *assembly) gemm(rows, groups int, kind string) {
	pointer, rowBytes := "*uint32", 2*together
	if kind == "f32" {
		pointer, rowBytes = "*float32", 4*together
	}
	k := a.kernel(fmt.Sprintf("gemm%dx%d%s", rows, together*groups, kind),
		"(out *float32, outStride int, a *float32, aStride int, w "+pointer+", k, first, fetch, fetchStep int)",
		fmt.Sprintf("adds %d rows of a by %d columns of a panel to out, or starts it if first is not 0; strides are in bytes. %s",
			rows, together*groups, fetchDoc(rows)))
	p := &product{kernel: k, kind: kind, activations: rows, groups: groups, rowBytes: rowBytes, w: k.load("w")}
	n, rest := k.load("k"), k.reg()
	p.a = k.rows(k.load("a"), k.load("aStride"), rows)
	p.acc, p.x = k.vectors(4*rows*groups), k.vectors(rows)
	p.spare = k.vectors(32 - k.vecs)
	k.block(p.start)
	fetch := p.fetches()
	k.op("AND $%d, %v, %v", quad-1, n, rest)
	k.op("LSR $2, %v, %v", n, n)
	k.op("CBZ %v, rest", n)
	k.loop("quads", n, 1, func() {
		fetch()
		p.quads()
	})
	k.label("rest")
	k.op("CBZ %v, done", rest)
	k.loop("singles", rest, 1, p.single)
	k.label("done")
	k.block(func() {
		p.eachOut(func(acc []vec, at reg) { k.st1(acc, at) })
	})
	k.end()
}

func fetchDoc(rows int) string {
	if rows == 1 {
		return "It fetches nothing."
	}
	return "For each 64 bytes of a row of weights it fetches fetchStep bytes, from w+fetch on."
}

// start writes the first values of the accumulators.
func (p *product) start() {
	first := p.load("first")
	p.op("CBZ %v, goOn", first)
	for _, v := range p.acc {
		p.zero(v)
	}
	p.op("JMP begin")
	p.label("goOn")
	p.eachOut(func(acc []vec, at reg) { p.ld1(acc, at) })
	p.label("begin")
}

// eachOut writes what do does for each row's groups of sixteen results. do advances the pointer.
func (p *product) eachOut(do func(acc []vec, at reg)) {
	for r, row := range p.rows(p.load("out"), p.load("outStride"), p.activations) {
		for g := range p.groups {
			do(p.acc[4*(r*p.groups+g):][:4], row)
		}
	}
}

// fetches returns a function that writes the prefetches of weights for one block. One row alone needs
// none, as it reads one stream. More rows come back to each block of this part of the panel several
// times, so the next part is fetched meanwhile.
func (p *product) fetches() func() {
	if p.activations == 1 {
		return func() {}
	}
	from, by := p.load("fetch"), p.load("fetchStep")
	lines := p.blockBytes() / 64
	p.op("ADD %v, %v, %v", p.w, from, from)
	p.op("LSL $%d, %v, %v", bits.TrailingZeros(uint(lines)), by, by)
	return func() {
		// At most what the tile's share of the block is, if no other rows take a part of it.
		for at := 0; at < lines*64*p.groups*together/columns; at += 64 {
			p.prefetch(from, at, 2)
		}
		p.op("ADD %v, %v, %v", by, from, from)
	}
}

// blockBytes returns the size of a block of a panel.
func (p *product) blockBytes() int { return quad * p.rowBytes * columns / together }

// quads writes the products of four k.
func (p *product) quads() {
	for r, x := range p.x {
		p.ldrNext(x, p.a[r])
	}
	vectors, loaded := quad*p.rowBytes/16, p.atOnce()
	for g := range p.groups {
		for i := 0; i < vectors; i += loaded {
			for j, w := range p.weights(loaded, 16*(g*vectors+i)) {
				p.multiply(w, g, i+j)
			}
		}
	}
	if loaded == 4 { // which has advanced w
		p.advance(p.blockBytes()-16*vectors*p.groups, p.w)
		return
	}
	p.advance(p.blockBytes(), p.w)
}

// atOnce returns the number of vectors of weights that one instruction loads.
func (p *product) atOnce() int {
	free := len(p.spare)
	if p.kind != "f32" {
		free-- // for the widened lower half
	}
	switch {
	case free >= 4:
		return 4
	case free >= 2:
		return 2
	}
	return 1
}

// weights loads n vectors of weights, at bytes into the block.
func (p *product) weights(n, at int) []vec {
	w := p.spare[:n]
	switch n {
	case 4:
		p.ld1(w, p.w)
	case 2:
		p.ldp(w[0], w[1], p.w, at)
	case 1:
		p.ldr(w[0], p.w, at)
	}
	return w
}

// multiply writes the products of vector i of a group's weights, which is changed.
func (p *product) multiply(w vec, group, i int) {
	perK := p.rowBytes / 16
	p.columns(w, group, i%perK, i/perK)
}

// columns writes the products of part i of a group's weights of one k with lane k of the activations.
func (p *product) columns(w vec, group, i, k int) {
	each := func(w vec, column int) {
		for r, x := range p.x {
			p.fmlaLane(p.acc[4*(r*p.groups+group)+column], w, x, k)
		}
	}
	if p.kind == "f32" {
		each(w, i)
		return
	}
	low := p.spare[len(p.spare)-1]
	p.widenLow(p.kind, low, w)
	each(low, 2*i)
	p.widenHigh(p.kind, w, w)
	each(w, 2*i+1)
}

// single writes the products of one k.
func (p *product) single() {
	for r, x := range p.x {
		p.ldrSingle(x, p.a[r])
	}
	for g := range p.groups {
		for i := range p.rowBytes / 16 {
			w := p.spare[0]
			p.ldr(w, p.w, g*quad*p.rowBytes+16*i)
			p.columns(w, g, i, 0)
		}
	}
	p.advance(p.rowBytes, p.w)
}
