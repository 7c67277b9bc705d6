// Matrix products: C[m][n] = Σ A[m][k]·W[n][k], bf16 in, f32 sums.
//
// All kernels share one order of summation, a function of K alone. K is cut into S slices (8, halved until 32·S divides
// K). Within a slice one accumulator is updated in steps of 32 products, by two mma of 16 each; the slices are then added
// to zero in ascending order. Which of a step's 32 products go to which mma is the same in all kernels: lane l holds
// elements 8(l%4)..8(l%4)+7, in the order a0, a2 of the first mma, a0, a2 of the second. So a lane loads 16 contiguous
// bytes of A and of W, and weights need no reordering. Bits depend neither on the kernel, nor on M, nor on a row's
// place in its tile, provided that mma computes rows independently.
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

// few computes up to 16·MT rows and loads each byte of W once per launch. A block computes 8·JT columns, a warp one slice
// of K. Weights pass through a ring of three steps in dynamic shared memory; a lane reads only what it copied itself, so
// no barrier is needed. The ring's memory then holds the slices' sums, 8 columns at a time. Each block loads all rows
// again, from L2, so blocks for many rows are wider. Rows are loaded one step ahead where registers allow it.
template <int MT, int JT>
__device__ __forceinline__ void few(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind) {
	extern __shared__ uint4 ring[]; // [3][JT][256]
	static_assert(3 * JT * 256 * 16 >= 8 * 16 * MT * 8 * sizeof(float), "the partial sums of 8 columns fit the ring");
	int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
	int slices = slices_of(K), steps = K / 32 / slices, n0 = blockIdx.x * 8 * JT;
	bool works = warp < slices;
	size_t k0 = (size_t)warp * steps * 32 + quad * 8;
	float acc[MT][JT][4] = {};

	auto fetch = [&](int step) {
#pragma unroll
		for (int j = 0; j < JT; j++) {
			int n = n0 + 8 * j + group;
			copy16(&ring[(step % 3 * JT + j) * 256 + threadIdx.x], W + (n < N ? n * (size_t)K + k0 + step * 32 : 0), n < N);
		}
	};
	auto row = [&](int m, int step) { return m < M ? *(const uint4 *)(A + m * (size_t)K + k0 + step * 32) : make_uint4(0, 0, 0, 0); };
	if (works) {
		uint4 lo[MT], hi[MT], next_lo[MT], next_hi[MT];
#pragma unroll 1
		for (int step = -2; step < steps; step++) {
			if (step + 2 < steps) fetch(step + 2);
			copy_commit();
#pragma unroll
			for (int i = 0; i < MT; i++) {
				lo[i] = next_lo[i], hi[i] = next_hi[i];
				if (step == -2 || step + 1 == steps) continue;
				next_lo[i] = row(16 * i + group, step + 1), next_hi[i] = row(16 * i + group + 8, step + 1);
			}
			if (step < 0) continue;
			copy_wait<2>();
#pragma unroll
			for (int j = 0; j < JT; j++) {
				uint4 b = ring[(step % 3 * JT + j) * 256 + threadIdx.x];
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
			else put(C, m * (size_t)N + n, sum, bias, n, kind);
		}
	}
}

// rows_of returns M, or the step's number of rows if live is not null and that is less.
__device__ __forceinline__ int rows_of(int M, const int *live) { return live ? min(M, *live) : M; }

// For up to 16, 32 and 64 rows. Grid: columns/32, for gemm64 columns/64. Dynamic shared memory: GEMM.SharedBytes in gemm.go.
KERNEL(256) gemm16(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) { few<1, 4>(C, A, W, bias, rows_of(M, live), N, K, kind); }
KERNEL(256) gemm32(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) { few<2, 4>(C, A, W, bias, rows_of(M, live), N, K, kind); }
KERNEL(256) gemm64(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) { few<4, 8>(C, A, W, bias, rows_of(M, live), N, K, kind); }

// many is for any number of rows. A block computes 128 rows and 128 columns, a warp 64 rows and 32 columns. Each warp
// reads all of K and adds its accumulators to its totals at the end of each slice. If ONE, the block computes one slice
// only. Three buffers in shared memory hold a step of 32 products each.
template <bool ONE>
__device__ __forceinline__ void many(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, int block_m, int block_n, int slice) {
	__shared__ uint4 tileA[3][128 * 4], tileW[3][128 * 4]; // a row of 32 elements is 4 pieces
	static_assert(sizeof tileA >= 32 * 128 * sizeof(float), "a quarter of the totals fits");
	int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
	int m0 = block_m * 128, n0 = block_n * 128, wm = warp / 4 * 64, wn = warp % 4 * 32;
	int per_slice = K / 32 / slices_of(K), steps = ONE ? per_slice : K / 32;
	size_t k0 = ONE ? (size_t)slice * per_slice * 32 : 0;
	float acc[4][4][4] = {}, total[4][4][4] = {};

	auto fetch = [&](int step) {
#pragma unroll
		for (int e = threadIdx.x; e < 512; e += 256) {
			int m = m0 + e / 4, n = n0 + e / 4;
			size_t k = k0 + (size_t)step * 32 + e % 4 * 8;
			copy16(&tileA[step % 3][e], A + (m < M ? m * (size_t)K + k : 0), m < M);
			copy16(&tileW[step % 3][e], W + (n < N ? n * (size_t)K + k : 0), n < N);
		}
	};
#pragma unroll 1
	for (int step = -2; step < steps; step++) {
		copy_wait<1>();
		__syncthreads(); // all have copied this step and have read the one whose buffer is filled next
		if (step + 2 < steps) fetch(step + 2);
		copy_commit();
		if (step < 0) continue;
		const uint4 *a = tileA[step % 3] + wm * 4, *w = tileW[step % 3] + wn * 4;
		uint4 b[4];
#pragma unroll
		for (int j = 0; j < 4; j++) b[j] = w[(8 * j + group) * 4 + quad];
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
			if (kind != SWIGLU) put(C, m * (size_t)N + n, part[e], bias, n, kind);
			else if (e % 8 < 4) put_swiglu(C, m, N, part[e], part[e + 4], bias, n);
		}
	}
}

// gemm128 takes blocks in bands of 8 rows of blocks, and within a band by columns: blocks that run at the same time need
// few rows of W, which stay in L2 from one row of blocks to the next. Grid: (columns/128, rows/128).
KERNEL(256) gemm128(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) {
	M = rows_of(M, live);
	u32 at = blockIdx.y * gridDim.x + blockIdx.x, band = at / (8 * gridDim.x), height = min(gridDim.y - 8 * band, 8u);
	at -= band * 8 * gridDim.x;
	u32 m = 8 * band + at % height;
	if (m * 128 >= M) return;
	many<false>(C, A, W, bias, M, N, K, kind, m, at / height, 0);
}

// gemm_slices computes the slices of a product of more than 64 rows in blocks of their own, for products that have too few
// blocks to use all multiprocessors. parts is [slice][M][N]. gemm_sum adds the slices, in the order of gemm128. Grid of gemm_slices: (columns/128, rows/128·slices), of gemm_sum: (columns/256, rows).
KERNEL(256) gemm_slices(float *parts, const u16 *A, const u16 *W, int M, int N, int K, const int *live) {
	int slices = slices_of(K), m = blockIdx.y / slices, slice = blockIdx.y % slices, rows = rows_of(M, live);
	if (m * 128 >= rows) return;
	many<true>(parts + (size_t)slice * M * N, A, W, 0, rows, N, K, TO_F32, m, blockIdx.x, slice);
}
__device__ __forceinline__ float parts_sum(const float *part, size_t stride, int slices) {
	float x[8], sum = 0;
#pragma unroll
	for (int s = 0; s < 8; s++) x[s] = s < slices ? part[s * stride] : 0;
#pragma unroll
	for (int s = 0; s < 8; s++)
		if (s < slices) sum = __fadd_rn(sum, x[s]);
	return sum;
}
KERNEL(256) gemm_sum(void *C, const float *parts, const float *bias, int M, int N, int K, int kind, const int *live) {
	int m = blockIdx.y, n = blockIdx.x * 256 + threadIdx.x;
	if (m >= rows_of(M, live) || n >= N || (kind == SWIGLU && n % 8 >= 4)) return;
	size_t at = (size_t)m * N + n, stride = (size_t)M * N;
	int slices = slices_of(K);
	float sum = parts_sum(parts + at, stride, slices);
	if (kind == SWIGLU) put_swiglu(C, m, N, sum, parts_sum(parts + at + 4, stride, slices), bias, n);
	else put(C, at, sum, bias, n, kind);
}
