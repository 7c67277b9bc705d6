// What all kernels share: bf16, the canonical functions of package internal/f32, and sums over a warp.
//
// Every file is compiled with -fmad=false: only __fmaf_rn is a fused multiply-add, and every other operation rounds
// once, per IEEE 754. So the functions below return the same bits as their namesakes in internal/f32.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define FULL 0xffffffffu
#define NEG_INF __int_as_float(0xff800000)
#define POS_INF __int_as_float(0x7f800000)
#define MAX_F32 __int_as_float(0x7f7fffff)

// padded is the length of a row of n values that a product reads; the values past n are zero.
__device__ __forceinline__ int padded(int n) { return (n + 31) / 32 * 32; }

// blocks_of returns the number of blocks that have work. A graph's grid may be larger than the step needs; then live
// points to the step's count. If live is null, all blocks have work.
__device__ __forceinline__ u32 blocks_of(const int *live) { return live ? (u32)*live : ~0u; }

// widen is exact.
__device__ __forceinline__ float widen(u16 b) { return __uint_as_float((u32)b << 16); }
__device__ __forceinline__ float widen_lo(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float widen_hi(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// narrow rounds to bf16, ties to even.
__device__ __forceinline__ u16 narrow(float x) {
	u16 r;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
	return r;
}

// narrow2 packs two values, the first in the lower half.
__device__ __forceinline__ u32 narrow2(float lo, float hi) {
	u32 r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}

// exp32 is f32.Exp32.
__device__ __forceinline__ float exp32(float x) {
	float n = __fadd_rn(__fadd_rn(__fmul_rn(x, 1.44269504f), 12582912.0f), -12582912.0f);
	float f = __fmaf_rn(n, -0.693359375f, x);
	f = __fmaf_rn(n, 2.12194440e-4f, f);
	float y = __fmaf_rn(1.0f / 720, f, 1.0f / 120);
	y = __fmaf_rn(y, f, 1.0f / 24);
	y = __fmaf_rn(y, f, 1.0f / 6);
	y = __fmaf_rn(y, f, 0.5f);
	y = __fmaf_rn(y, f, 1.0f);
	y = __fmaf_rn(y, f, 1.0f);
	// n is in [-126, 128]; half the scale first, for 2^128 is no f32.
	int e = (int)n;
	bool halved = e > -126;
	y = __fmul_rn(__fmul_rn(y, __int_as_float((e + (halved ? 126 : 127)) << 23)), halved ? 2.0f : 1.0f);
	y = x < -87.0f ? 0.0f : y;
	return x > 88.72283f ? POS_INF : y;
}

// log32 is f32.Log32 for finite x > 0.
__device__ __forceinline__ float log32(float x) {
	int n = 0;
	if (x < 1.17549435e-38f) {
		x = __fmul_rn(x, 16777216.0f);
		n = -24;
	}
	const u32 sqrt_half = 0x3f3504f3; // bits of the square root of 1/2
	u32 u = __float_as_uint(x) - sqrt_half;
	n += (int)u >> 23;
	float f = __fadd_rn(__uint_as_float((u & 0x7fffff) + sqrt_half), -1.0f);
	float s = __fdiv_rn(f, __fadd_rn(f, 2.0f));
	float z = __fmul_rn(s, s);
	float y = __fmaf_rn(2.0f / 11, z, 2.0f / 9);
	y = __fmaf_rn(y, z, 2.0f / 7);
	y = __fmaf_rn(y, z, 2.0f / 5);
	y = __fmaf_rn(y, z, 2.0f / 3);
	y = __fmul_rn(y, z);
	y = __fmaf_rn(s, __fsub_rn(y, f), __fmul_rn((float)n, -2.12194440e-4f));
	return __fmaf_rn((float)n, 0.693359375f, __fadd_rn(f, y));
}

// warp_sum adds x over the lanes of a warp, in a tree. All lanes get the same sum.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
	for (int d = 16; d; d >>= 1) x = __fadd_rn(x, __shfl_xor_sync(FULL, x, d));
	return x;
}

// mma is D = A·B + D for one tile of 16 rows, 8 columns and 16 products: bf16 in, f32 out. Lane l holds of A
// rows l/4 (a0, a2) and l/4+8 (a1, a3) at k = 2(l%4) (a0, a1) and at k+8 (a2, a3), of B column l/4 at the same k
// (b0) and at k+8 (b1), and of D columns 2(l%4) and 2(l%4)+1 of rows l/4 (d0, d1) and l/4+8 (d2, d3).
__device__ __forceinline__ void mma(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// copy16 starts an asynchronous copy of 16 bytes into shared memory, or of zeros if !there.
__device__ __forceinline__ void copy16(void *dst, const void *src, bool there) {
	int bytes = there ? 16 : 0;
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
