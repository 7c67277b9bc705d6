// Products with weights in bf16.
#include "gemm.cuh"

// Plain is weights in bf16, [N][K]. A lane reads only what it has copied itself.
struct Plain {
	static constexpr int STEP = 512, SUPER = 0, DEPTH = 3;
	static constexpr bool SHARED = false;

	template <int TILES, int THREADS>
	__device__ __forceinline__ static void fetch(char *step, char *, const void *weights, int n0, int N, int K, int g, bool, int thread) {
#pragma unroll
		for (int e = thread; e < TILES * 32; e += THREADS) {
			int n = n0 + e / 4;
			copy16(step + 16 * e, (const u16 *)weights + (n < N ? n * (size_t)K + (size_t)g * 32 + e % 4 * 8 : 0), n < N);
		}
	}
	__device__ __forceinline__ static uint4 load(const char *step, const char *, int lane) { return ((const uint4 *)step)[lane]; }
};

// For up to 16, 32 and 64 rows. Grid: columns/32, for gemm64 columns/64. Dynamic shared memory: GEMM.SharedBytes in gemm.go.
KERNEL(256) gemm16(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) { few<Plain, 1, 4>(C, A, W, bias, rows_of(M, live), N, K, kind, N); }
KERNEL(256) gemm32(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) { few<Plain, 2, 4>(C, A, W, bias, rows_of(M, live), N, K, kind, N); }
KERNEL(256) gemm64(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) { few<Plain, 4, 8>(C, A, W, bias, rows_of(M, live), N, K, kind, N); }

// For any number of rows.
KERNEL(256) gemm128(void *C, const u16 *A, const u16 *W, const float *bias, int M, int N, int K, int kind, const int *live) { all_rows<Plain>(C, A, W, bias, rows_of(M, live), N, K, kind, N); }

// gemm_slices computes the slices of a product in blocks of their own, also for products with other types of weights.
// gemm_sum adds the slices, in the order of gemm128. Its grid: (columns/256, rows).
KERNEL(256) gemm_slices(float *parts, const u16 *A, const u16 *W, int M, int N, int K, const int *live) { one_slice<Plain>(parts, A, W, M, N, K, live, N); }

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
