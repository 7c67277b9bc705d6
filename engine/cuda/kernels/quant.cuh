// Products with weights that stay quantised in memory. A weight is widened to f32 as package gguf does it, in the same
// steps, and rounded to bf16; then the product is that of bf16 weights. So the bits are those of a matrix that was
// rounded to bf16 before it was uploaded.
//
// A matrix is in tiles of 8 rows; the last one is padded with zeros. A tile is a sequence of steps of 32 columns. A step is
// one record: low bits by lane (the lane of an mma that uses them: row·4 + column/8), then high bits by lane, then scales
// by row. After each 8 steps follows their super, by row. Form in quant.go has the same numbers, and the packing.
#pragma once
#include "gemm.cuh"

// Where a scale and a minimum of a row come from.
enum Scales {
	ONE_F16,    // record: an f16 scale
	TWO_BYTES,  // record: factors of scale and minimum, a byte each; super: two f16 that they multiply
	TWO_SCALES, // record: factors of the scales of 16 columns each, signed bytes; super: one f16
};

// and_or returns x & mask | bits.
__device__ __forceinline__ u32 and_or(u32 x, u32 mask, u32 bits) {
	u32 r;
	asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(x), "r"(mask), "r"(bits));
	return r;
}

// MAGIC with an integer below 2^23 in its low bits is the float 2^23 plus this integer.
constexpr u32 MAGIC = 0x4b000000;

// byte_less returns byte i of x, less bias, exactly.
__device__ __forceinline__ float byte_less(u32 x, int i, float bias) {
	return __fsub_rn(__uint_as_float(__byte_perm(x, MAGIC, 0x7650 + i)), 8388608.0f + bias);
}

__device__ __forceinline__ float from_half(u32 h) {
	float x;
	asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)h));
	return x;
}

// Quant is weights of BITS bits (4, 6 or 8), from which BIAS is subtracted.
template <int BITS, int BIAS, Scales SCALES>
struct Quant {
	static constexpr int LOW = BITS == 8 ? 8 : 4, HIGH = BITS == 6 ? 2 : 0; // bytes of a lane
	static constexpr int STEP = 32 * (LOW + HIGH) + 8 * 2, SUPER = SCALES == ONE_F16 ? 0 : SCALES == TWO_BYTES ? 32 : 16, DEPTH = 4;
	static constexpr bool SHARED = true;
	static constexpr int PIECES = STEP / 16;

	// tile returns the address of step g of a tile.
	__device__ __forceinline__ static const char *at(const void *weights, int tile, int K, int g) {
		return (const char *)weights + (size_t)tile * (size_t)(K / 32 * STEP + K / 256 * SUPER) + (g / 8 * (8 * STEP + SUPER) + g % 8 * STEP);
	}
	__device__ __forceinline__ static const char *super_at(const void *weights, int tile, int K, int g) { return at(weights, tile, K, g / 8 * 8) + 8 * STEP; }

	template <int TILES, int THREADS>
	__device__ __forceinline__ static void fetch(char *step, char *super, const void *weights, int n0, int N, int K, int g, bool first, int thread) {
		int tile0 = n0 / 8, tiles = (N + 7) / 8;
#pragma unroll
		for (int e = thread; e < TILES * PIECES; e += THREADS) {
			int tile = tile0 + e / PIECES;
			bool there = tile < tiles;
			copy16(step + 16 * e, at(weights, there ? tile : 0, K, g) + e % PIECES * 16, there);
		}
		if constexpr (SUPER > 0)
			if (first || g % 8 == 0)
#pragma unroll
				for (int e = thread; e < TILES * SUPER / 16; e += THREADS) {
					int tile = tile0 + e / (SUPER / 16);
					bool there = tile < tiles;
					copy16(super + 16 * e, super_at(weights, there ? tile : 0, K, g) + e % (SUPER / 16) * 16, there);
				}
	}

	__device__ __forceinline__ static uint4 load(const char *step, const char *super, int lane) {
		int row = lane / 4;
		u32 factors = *(const u16 *)(step + 32 * (LOW + HIGH) + 2 * row);
		float scale, least = 0;
		if (SCALES == ONE_F16) scale = from_half(factors);
		if (SCALES == TWO_BYTES) {
			u32 both = *(const u32 *)(super + 4 * row);
			scale = __fmul_rn(from_half(both), byte_less(factors, 0, 0));
			least = __fmul_rn(from_half(both >> 16), -byte_less(factors, 1, 0));
		}
		if (SCALES == TWO_SCALES) // signed bytes: 128 more is unsigned
			scale = __fmul_rn(from_half(*(const u16 *)(super + 2 * row)), byte_less(factors ^ 0x8080, lane % 4 / 2, 128));
		float x[8];
		if (BITS == 4) {
			u32 q = *(const u32 *)(step + 4 * lane);
#pragma unroll
			for (int i = 0; i < 4; i++) { // value i of each half is 16^i times its integer: this saves shifts
				constexpr u32 unit[4] = {1, 16, 256, 4096};
				float part = __fmul_rn(scale, 1.0f / unit[i]);
				x[i] = __fsub_rn(__uint_as_float(and_or(q, 15 * unit[i], MAGIC)), 8388608.0f + BIAS * unit[i]);
				x[i + 4] = __fsub_rn(__uint_as_float(and_or(q >> 16, 15 * unit[i], MAGIC)), 8388608.0f + BIAS * unit[i]);
				x[i] = SCALES == TWO_BYTES ? __fmaf_rn(x[i], part, least) : __fmul_rn(x[i], part); // the product is exact
				x[i + 4] = SCALES == TWO_BYTES ? __fmaf_rn(x[i + 4], part, least) : __fmul_rn(x[i + 4], part);
			}
		} else {
			u32 lo, hi;
			if (BITS == 8) {
				uint2 q = *(const uint2 *)(step + 8 * lane);
				lo = q.x, hi = q.y;
			} else { // bits 2(i/2) + 8(i%2) of high and the next one are bits 4 and 5 of value i
				u32 q = *(const u32 *)(step + 4 * lane), high = *(const u16 *)(step + 32 * LOW + 2 * lane);
				lo = and_or(high << 4, 0x3030, and_or(high << 18, 0x30300000, q & 0x0f0f0f0f));
				hi = and_or(high, 0x3030, and_or(high << 14, 0x30300000, q >> 4 & 0x0f0f0f0f));
			}
#pragma unroll
			for (int i = 0; i < 8; i++) x[i] = __fmul_rn(byte_less(i < 4 ? lo : hi, i % 4, BIAS), scale);
		}
		return make_uint4(narrow2(x[0], x[1]), narrow2(x[2], x[3]), narrow2(x[4], x[5]), narrow2(x[6], x[7]));
	}
};

// lookup writes x[t] = row token of a matrix, rounded to bf16, as embed in layers.cu does for other types. dim is a
// multiple of 32.
template <class W>
__device__ __forceinline__ void lookup(float *x, int *failed, const void *table, const int *tokens, const int *slots, const int *rows, const int *last, int dim) {
	int t = blockIdx.x, token = tokens[t];
	if (token < 0) token = last[slots[t]];
	if (token < 0) {
		if (threadIdx.x == 0) atomicOr(failed + rows[t], 1);
		token = 0;
	}
	for (int i = threadIdx.x; i < dim / 8; i += blockDim.x) {
		uint4 b = W::load(W::at(table, token / 8, dim, i / 4), W::SUPER ? W::super_at(table, token / 8, dim, i / 4) : 0, token % 8 * 4 + i % 4);
		float4 *out = (float4 *)(x + (size_t)t * dim + 8 * i);
		out[0] = make_float4(widen_lo(b.x), widen_hi(b.x), widen_lo(b.y), widen_hi(b.y));
		out[1] = make_float4(widen_lo(b.z), widen_hi(b.z), widen_lo(b.w), widen_hi(b.w));
	}
}

// widen_row writes a row of a matrix in bf16. Grid: (rows, columns/2048).
template <class W>
__device__ __forceinline__ void widen_row(uint4 *out, const void *weights, int K) {
	int row = blockIdx.x, i = blockIdx.y * 256 + threadIdx.x, g = i / 4;
	if (i >= K / 8) return;
	out[(size_t)row * (K / 8) + i] = W::load(W::at(weights, row / 8, K, g), W::SUPER ? W::super_at(weights, row / 8, K, g) : 0, row % 8 * 4 + i % 4);
}

// random_weights writes n words of a matrix, with random weights of a magnitude near 1/sqrt(4096). Word i depends on seed
// and i only. Grid: n/256, rounded up.
template <class W>
__device__ __forceinline__ void random_weights(u32 *out, u32 n, u32 seed) {
	u32 i = blockIdx.x * 256 + threadIdx.x, x = i * 0x9e3779b9u ^ seed;
	if (i >= n) return;
	x = (x ^ x >> 16) * 0x7feb352du, x = (x ^ x >> 15) * 0x846ca68bu, x ^= x >> 16; // lowbias32 (Wellons, 2018)
	u32 at = 4 * (i % ((8 * W::STEP + W::SUPER) / 4)), within = at % W::STEP;
	if (at >= 8 * W::STEP) x = W::SUPER == 32 ? 0x0f800400 : 0x01000100;             // 2^-14 and 7.5·2^-14; 2^-16
	else if (within >= W::STEP - 16 && W::SUPER == 32) x &= 0x3f3f3f3f;              // factors of six bits
	else if (within >= W::STEP - 16 && W::SUPER == 0) x = (x & 0x83ff83ff) | 0x0c000c00; // 2^-12 to 2^-11
	out[i] = x;
}

// The kernels of a form: as those of gemm.cu, for a matrix of N rows; rows of C begin stride elements apart. With them,
// several matrices compute one C, each its columns.
#define PRODUCTS(form, W) \
	KERNEL(256) gemm16_##form(void *C, const u16 *A, const void *w, const float *bias, int M, int N, int K, int kind, const int *live, int stride) { few<W, 1, 4>(C, A, w, bias, rows_of(M, live), N, K, kind, stride); } \
	KERNEL(256) gemm32_##form(void *C, const u16 *A, const void *w, const float *bias, int M, int N, int K, int kind, const int *live, int stride) { few<W, 2, 4>(C, A, w, bias, rows_of(M, live), N, K, kind, stride); } \
	KERNEL(256) gemm64_##form(void *C, const u16 *A, const void *w, const float *bias, int M, int N, int K, int kind, const int *live, int stride) { few<W, 4, 8>(C, A, w, bias, rows_of(M, live), N, K, kind, stride); } \
	KERNEL(256) gemm128_##form(void *C, const u16 *A, const void *w, const float *bias, int M, int N, int K, int kind, const int *live, int stride) { all_rows<W>(C, A, w, bias, rows_of(M, live), N, K, kind, stride); } \
	KERNEL(256) gemm_slices_##form(float *parts, const u16 *A, const void *w, int M, int N, int K, const int *live, int stride) { one_slice<W>(parts, A, w, M, N, K, live, stride); } \
	KERNEL(256) embed_##form(float *x, int *failed, const void *table, const int *tokens, const int *slots, const int *rows, const int *last, int dim, int, const int *live) { if (blockIdx.x < blocks_of(live)) lookup<W>(x, failed, table, tokens, slots, rows, last, dim); } \
	KERNEL(256) make_##form(u32 *out, u64 n, u64 seed) { random_weights<W>(out, (u32)n, (u32)seed); } \
	KERNEL(256) widen_##form(uint4 *out, const void *w, int K) { widen_row<W>(out, w, K); }
