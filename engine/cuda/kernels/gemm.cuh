// Matrix products: C[m][n] = Σ A[m][k]·W[n][k], bf16 in, f32 sums.
//
// All kernels share one order of summation, a function of K alone. K is cut into S slices (8, halved until 32·S divides
// K). Within a slice one accumulator is updated in steps of 32 products, by two mma of 16 each; the slices are then added
// to zero in ascending order. Which of a step's 32 products go to which mma is the same in all kernels: lane l holds
// elements 8(l%4)..8(l%4)+7, in the order a0, a2 of the first mma, a0, a2 of the second. So a lane loads 16 contiguous
// bytes of A and of W, and weights in bf16 need no reordering. Bits depend neither on the kernel, nor on M, nor on a row's
// place in its tile, provided that mma computes rows independently.
//
// A type of weights W says how a step of 8 columns, a tile, comes into shared memory and from there into registers:
//
//	W::STEP   bytes of a tile's step in shared memory
//	W::SUPER  bytes that 8 successive steps of a tile share; may be 0
//	W::DEPTH  steps in the ring of kernels for few rows
//	W::SHARED whether a lane reads what other lanes of the warp have copied
//	W::fetch<TILES, THREADS>(step, super, weights, n0, N, K, g, thread)
//	          starts the copy of step g of TILES tiles from column n0 on, by that many threads; of super only if g is
//	          the first step that needs it, or first is set
//	W::load(step, super, lane)
//	          returns the 8 weights of a lane, in bf16
#pragma once
#include "common.cuh"

// How a sum is stored. SWIGLU takes columns in groups of 8, four gates and their four values, and writes
// silu(gate)·value, half as many columns, rounded once.
enum { TO_BF16 = 0, TO_F32 = 1, ADD_F32 = 2, SWIGLU = 3 };

__device__ __forceinline__ int slices_of(int K) {
	int s = 8;
	while (K % (32 * s)) s >>= 1;
	return s;
}

__device__ __forceinline__ void put(void *C, size_t at, float sum, const float *bias, int n, int kind) {
	if (bias) sum = __fadd_rn(sum, bias[n]);
	if (kind == TO_BF16) ((u16 *)C)[at] = narrow(sum);
	else if (kind == TO_F32) ((float *)C)[at] = sum;
	else ((float *)C)[at] = __fadd_rn(((float *)C)[at], sum);
}

// put_swiglu stores the gate in column n of row m and its value as SWIGLU.
__device__ __forceinline__ void put_swiglu(void *C, int m, int N, float gate, float value, const float *bias, int n) {
	if (bias) gate = __fadd_rn(gate, bias[n]), value = __fadd_rn(value, bias[n + 4]);
	((u16 *)C)[(size_t)m * (N / 2) + n / 8 * 4 + n % 8] = narrow(__fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, exp32(-gate))), value));
}

// slices_sum adds the partial sums of one element, in ascending order of slices.
__device__ __forceinline__ float slices_sum(const float *part, int stride, int slices) {
	float sum = 0;
#pragma unroll 1
	for (int s = 0; s < slices; s++) sum = __fadd_rn(sum, part[s * stride]);
	return sum;
}

// rows_of returns M, or the step's number of rows if live is not null and that is less.
__device__ __forceinline__ int rows_of(int M, const int *live) { return live ? min(M, *live) : M; }

// few computes up to 16·MT rows and loads each byte of W once per launch. A block computes 8·JT columns, a warp one slice
// of K. Weights pass through a ring of steps in dynamic shared memory, of which each warp has a part of its own, so no
// barrier is needed. The ring's memory then holds the slices' sums, 8 columns at a time. Each block loads all rows
// again, from L2, so blocks for many rows are wider. Rows are loaded one step ahead where registers allow it. Rows of C
// begin stride elements apart.
template <class W, int MT, int JT>
__device__ __forceinline__ void few(void *C, const u16 *A, const void *weights, const float *bias, int M, int N, int K, int kind, int stride) {
	extern __shared__ uint4 ring[]; // [8 warps][DEPTH steps and 2 supers]
	constexpr int STEP = JT * W::STEP, SUPER = JT * W::SUPER, OWN = W::DEPTH * STEP + 2 * SUPER;
	static_assert(8 * OWN >= 8 * 16 * MT * 8 * sizeof(float), "the partial sums of 8 columns fit the ring");
	int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
	int slices = slices_of(K), steps = K / 32 / slices, n0 = blockIdx.x * 8 * JT, g0 = warp * steps;
	bool works = warp < slices;
	size_t k0 = (size_t)g0 * 32 + quad * 8;
	char *own = (char *)ring + warp * OWN;
	float acc[MT][JT][4] = {};

	auto row = [&](int m, int step) { return m < M ? *(const uint4 *)(A + m * (size_t)K + k0 + step * 32) : make_uint4(0, 0, 0, 0); };
	if (works) {
		uint4 lo[MT], hi[MT], next_lo[MT], next_hi[MT];
#pragma unroll 1
		for (int step = 1 - W::DEPTH; step < steps; step++) {
			int ahead = step + W::DEPTH - 1, g = g0 + ahead;
			if (W::SHARED) __syncwarp(); // all have read the step whose place is filled next
			if (ahead < steps)
				W::template fetch<JT, 32>(own + ahead % W::DEPTH * STEP, own + W::DEPTH * STEP + g / 8 % 2 * SUPER, weights, n0, N, K, g, ahead == 0, lane);
			copy_commit();
#pragma unroll
			for (int i = 0; i < MT; i++) {
				lo[i] = next_lo[i], hi[i] = next_hi[i];
				if (step < -1 || step + 1 == steps) continue;
				next_lo[i] = row(16 * i + group, step + 1), next_hi[i] = row(16 * i + group + 8, step + 1);
			}
			if (step < 0) continue;
			copy_wait<W::DEPTH - 1>();
			if (W::SHARED) __syncwarp();
			const char *at = own + step % W::DEPTH * STEP, *super = own + W::DEPTH * STEP + (g0 + step) / 8 % 2 * SUPER;
#pragma unroll
			for (int j = 0; j < JT; j++) {
				uint4 b = W::load(at + j * W::STEP, super + j * W::SUPER, lane);
#pragma unroll
				for (int i = 0; i < MT; i++) {
					mma(acc[i][j], lo[i].x, hi[i].x, lo[i].y, hi[i].y, b.x, b.y);
					mma(acc[i][j], lo[i].z, hi[i].z, lo[i].w, hi[i].w, b.z, b.w);
				}
			}
		}
		copy_wait<0>();
	}
	float *part = (float *)ring; // [slice][row][8 columns]
#pragma unroll
	for (int j = 0; j < JT; j++) {
		__syncthreads();
		if (works)
#pragma unroll
			for (int i = 0; i < MT; i++) {
				float *p = part + (warp * 16 * MT + 16 * i + group) * 8 + 2 * quad;
				*(float2 *)p = make_float2(acc[i][j][0], acc[i][j][1]);
				*(float2 *)(p + 64) = make_float2(acc[i][j][2], acc[i][j][3]);
			}
		__syncthreads();
#pragma unroll 1
		for (int e = threadIdx.x; e < 16 * MT * 8; e += 256) {
			int m = e / 8, n = n0 + 8 * j + e % 8;
			if (m >= M || n >= N || (kind == SWIGLU && e % 8 >= 4)) continue;
			float sum = slices_sum(part + e, 16 * MT * 8, slices);
			if (kind == SWIGLU) put_swiglu(C, m, N, sum, slices_sum(part + e + 4, 16 * MT * 8, slices), bias, n);
			else put(C, m * (size_t)stride + n, sum, bias, n, kind);
		}
	}
}

// many is for any number of rows. A block computes 128 rows and 128 columns, a warp 64 rows and 32 columns. Each warp
// reads all of K and adds its accumulators to its totals at the end of each slice. If ONE, the block computes one slice
// only. Three buffers in shared memory hold a step of 32 products each.
template <class W, bool ONE>
__device__ __forceinline__ void many(void *C, const u16 *A, const void *weights, const float *bias, int M, int N, int K, int kind, int stride, int block_m, int block_n, int slice) {
	__shared__ uint4 tileA[3][128 * 4]; // a row of 32 elements is 4 pieces
	__shared__ __align__(16) char tileW[3][16 * W::STEP], supers[2][16 * W::SUPER + 16];
	static_assert(sizeof tileA >= 32 * 128 * sizeof(float), "a quarter of the totals fits");
	int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
	int m0 = block_m * 128, n0 = block_n * 128, wm = warp / 4 * 64, wn = warp % 4 * 32;
	int per_slice = K / 32 / slices_of(K), steps = ONE ? per_slice : K / 32, g0 = ONE ? slice * per_slice : 0;
	float acc[4][4][4] = {}, total[4][4][4] = {};

	auto fetch = [&](int step) {
		int g = g0 + step;
#pragma unroll
		for (int e = threadIdx.x; e < 512; e += 256) {
			int m = m0 + e / 4;
			copy16(&tileA[step % 3][e], A + (m < M ? m * (size_t)K + (size_t)g * 32 + e % 4 * 8 : 0), m < M);
		}
		W::template fetch<16, 256>(tileW[step % 3], supers[g / 8 % 2], weights, n0, N, K, g, step == 0, threadIdx.x);
	};
#pragma unroll 1
	for (int step = -2; step < steps; step++) {
		copy_wait<1>();
		__syncthreads(); // all have copied this step and have read the one whose buffer is filled next
		if (step + 2 < steps) fetch(step + 2);
		copy_commit();
		if (step < 0) continue;
		const uint4 *a = tileA[step % 3] + wm * 4;
		const char *w = tileW[step % 3] + wn / 8 * W::STEP, *super = supers[(g0 + step) / 8 % 2] + wn / 8 * W::SUPER;
		uint4 b[4];
#pragma unroll
		for (int j = 0; j < 4; j++) b[j] = W::load(w + j * W::STEP, super + j * W::SUPER, lane);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint4 lo = a[(16 * i + group) * 4 + quad], hi = a[(16 * i + group + 8) * 4 + quad];
#pragma unroll
			for (int j = 0; j < 4; j++) {
				mma(acc[i][j], lo.x, hi.x, lo.y, hi.y, b[j].x, b[j].y);
				mma(acc[i][j], lo.z, hi.z, lo.w, hi.w, b[j].z, b[j].w);
			}
		}
		if (!ONE && (step + 1) % per_slice == 0) {
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 4; j++)
#pragma unroll
					for (int c = 0; c < 4; c++) {
						total[i][j][c] = __fadd_rn(total[i][j][c], acc[i][j][c]);
						acc[i][j][c] = 0;
					}
		}
	}
	copy_wait<0>();
	float *part = (float *)tileA; // 32 rows (16 of each half of the block) of 128 columns
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__syncthreads();
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const float *sum = ONE ? acc[i][j] : total[i][j];
			float *p = part + (warp / 4 * 16 + group) * 128 + wn + 8 * j + 2 * quad;
			*(float2 *)p = make_float2(sum[0], sum[1]);
			*(float2 *)(p + 8 * 128) = make_float2(sum[2], sum[3]);
		}
		__syncthreads();
#pragma unroll 1
		for (int e = threadIdx.x; e < 32 * 128; e += 256) {
			int m = m0 + e / 2048 * 64 + 16 * i + e / 128 % 16, n = n0 + e % 128;
			if (m >= M || n >= N) continue;
			if (kind != SWIGLU) put(C, m * (size_t)stride + n, part[e], bias, n, kind);
			else if (e % 8 < 4) put_swiglu(C, m, N, part[e], part[e + 4], bias, n);
		}
	}
}

// all_rows computes a product of any number of rows. It takes blocks in bands of 8 rows of blocks, and within a band by
// columns: blocks that run at the same time need few rows of W, which stay in L2 from one row of blocks to the next.
// Grid: (columns/128, rows/128).
template <class W>
__device__ __forceinline__ void all_rows(void *C, const u16 *A, const void *weights, const float *bias, int M, int N, int K, int kind, int stride) {
	u32 at = blockIdx.y * gridDim.x + blockIdx.x, band = at / (8 * gridDim.x), height = min(gridDim.y - 8 * band, 8u);
	at -= band * 8 * gridDim.x;
	u32 m = 8 * band + at % height;
	if (m * 128 >= M) return;
	many<W, false>(C, A, weights, bias, M, N, K, kind, stride, m, at / height, 0);
}

// one_slice computes one slice of a product of more than 64 rows: for products that have too few blocks to use all
// multiprocessors. parts is [slice][M][stride]. Grid: (columns/128, rows/128·slices).
template <class W>
__device__ __forceinline__ void one_slice(float *parts, const u16 *A, const void *weights, int M, int N, int K, const int *live, int stride) {
	int slices = slices_of(K), m = blockIdx.y / slices, slice = blockIdx.y % slices, rows = rows_of(M, live);
	if (m * 128 >= rows) return;
	many<W, true>(parts + (size_t)slice * M * stride, A, weights, 0, rows, N, K, TO_F32, stride, m, blockIdx.x, slice);
}
