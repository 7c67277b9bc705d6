package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// XXH3 reads stripes of 64 bytes. Sixteen stripes make a block, after which the accumulators are
// scrambled. The last stripe of a piece of hashPiece bytes uses a special offset in the secret, and
// the accumulators are not scrambled after the last block.
const (
	stripeBytes   = 64
	blockStripes  = 16
	hashPiece     = 16 << 10
	scrambleAt    = 128 // offset in the secret
	lastStripeAt  = 121
	scramblePrime = 2654435761
)

// hashCopy generates the copy of one piece of memory with its hash.
func (t *target) hashCopy() {
	t.text("copyHash", "(acc *[8]uint64, dst, src *[16384]byte, secret *[192]byte)",
		"copies src to dst and adds it to the accumulators of XXH3. dst is aligned to 64 bytes; the stores pass the caches, and are fenced.")
	h := &hasher{t: t}
	acc := Load(Param("acc"), GP64())
	h.dst, h.src, h.secret = Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("secret"), GP64())
	n := stripeBytes / t.bytes()
	h.acc, h.prime = t.vectors(n), t.vector()
	for i, v := range h.acc {
		t.move(Mem{Base: acc, Disp: i * t.bytes()}, v)
	}
	word := GP64()
	MOVQ(U64(scramblePrime), word)
	low := XMM()
	MOVQ(word, low)
	VPBROADCASTQ(low, h.prime)
	blocks := GP64()
	MOVQ(I32(hashPiece/stripeBytes/blockStripes-1), blocks)
	loop("block", blocks, 1, func() {
		for i := range blockStripes {
			h.stripe(i, 8*i)
		}
		h.scramble()
		advance(stripeBytes*blockStripes, h.src, h.dst)
	})
	for i := range blockStripes - 1 {
		h.stripe(i, 8*i)
	}
	h.stripe(blockStripes-1, lastStripeAt)
	for i, v := range h.acc {
		t.move(v, Mem{Base: acc, Disp: i * t.bytes()})
	}
	SFENCE()
	end()
}

// hasher is the state of hashCopy.
type hasher struct {
	t                *target
	dst, src, secret reg.Register
	acc              []reg.VecVirtual
	prime            reg.VecVirtual
}

// stripe generates the copy of one stripe and its accumulation.
func (h *hasher) stripe(i, at int) {
	t := h.t
	PREFETCHNTA(Mem{Base: h.src, Disp: stripeBytes*i + prefetchAhead})
	for v, acc := range h.acc {
		disp := stripeBytes*i + v*t.bytes()
		data, key, high := t.vector(), t.vector(), t.vector()
		t.move(Mem{Base: h.src, Disp: disp}, data)
		VMOVNTDQ(data, Mem{Base: h.dst, Disp: disp})
		t.move(Mem{Base: h.secret, Disp: at + v*t.bytes()}, key)
		t.xor(data, key, key)
		VPSHUFD(U8(0x31), key, high)
		VPMULUDQ(key, high, high)
		VPSHUFD(U8(0x4e), data, data)
		VPADDQ(data, acc, acc)
		VPADDQ(high, acc, acc)
	}
}

// prefetchAhead is the distance of prefetches from the copy, in bytes. The processor's prefetcher
// stops at the end of each page of 4 KiB.
const prefetchAhead = 4096

// scramble generates the scrambling of the accumulators after a block.
func (h *hasher) scramble() {
	t := h.t
	for v, acc := range h.acc {
		x, high := t.vector(), t.vector()
		VPSRLQ(U8(47), acc, x)
		t.xor(x, acc, acc)
		t.move(Mem{Base: h.secret, Disp: scrambleAt + v*t.bytes()}, x)
		t.xor(x, acc, acc)
		VPSRLQ(U8(32), acc, high)
		VPMULUDQ(h.prime, high, high)
		VPSLLQ(U8(32), high, high)
		VPMULUDQ(h.prime, acc, acc)
		VPADDQ(high, acc, acc)
	}
}
