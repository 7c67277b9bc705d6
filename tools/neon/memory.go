package main

// fetch generates prefetches of memory that will be read soon.
func (a *assembly) fetch() {
	k := a.kernel("fetch", "(p *byte, n int)", "fetches n bytes into the first-level cache; n is a positive multiple of 64.")
	p, n := k.load("p"), k.load("n")
	k.loop("step", n, 64, func() {
		k.prefetch(p, 0, 1)
		k.advance(64, p)
	})
	k.end()
}

// stream generates a loop that reads memory with next to no arithmetic, to measure its bandwidth.
func (a *assembly) stream() {
	k := a.kernel("stream", "(p *uint32, n int) (sum uint32)",
		"adds n words in some order: as fast as one core reads memory; n is a positive multiple of 256.")
	p, n := k.load("p"), k.load("n")
	acc, v := k.vectors(4), k.vectors(8)
	for _, a := range acc {
		k.zero(a)
	}
	k.loop("step", n, 256, func() {
		for i := range 16 { // four vectors each
			w := v[i%2*4:][:4]
			k.ld1(w, p)
			for j, w := range w {
				k.add32(acc[j], acc[j], w)
			}
		}
	})
	for _, v := range acc[1:] {
		k.add32(acc[0], acc[0], v)
	}
	k.op("FMOVS F%d, %s", acc[0], k.param("sum"))
	k.end()
}

// narrowF16 generates the rounding to f16, ties to even.
func (a *assembly) narrowF16() {
	k := a.kernel("narrowF16", "(dst *uint16, src *float32, n int)", "rounds n values to binary16; n is a positive multiple of 16.")
	dst, src, n := k.load("dst"), k.load("src"), k.load("n")
	v, h := k.vectors(4), k.vectors(2)
	k.sixteens("step", n, func() {
		k.ld1(v, src)
		for i := range 2 {
			k.narrowLow(h[i], v[2*i])
			k.narrowHigh(h[i], v[2*i+1])
		}
		k.st1(h, dst)
	})
	k.end()
}

func (a *assembly) widenF16() {
	k := a.kernel("widenF16", "(dst *float32, src *uint16, n int)", "widens n binary16 values; n is a positive multiple of 16.")
	k.widen("f16")
}

func (a *assembly) widenBF16() {
	k := a.kernel("widenBF16", "(dst *float32, src *uint16, n int)", "widens n bfloat16 values; n is a positive multiple of 16.")
	k.widen("bf16")
}

// widen writes the body of a kernel that widens values of 16 bits.
func (k *kernel) widen(kind string) {
	dst, src, n := k.load("dst"), k.load("src"), k.load("n")
	v, h := k.vectors(4), k.vectors(2)
	k.sixteens("step", n, func() {
		k.ld1(h, src)
		for i, h := range h {
			k.widenLow(kind, v[2*i], h)
			k.widenHigh(kind, v[2*i+1], h)
		}
		k.st1(v, dst)
	})
	k.end()
}
