// Kernels with planted faults that the interpreter must report.
#include "../../kernels/common.cuh"

KERNEL(64) copy_words(u32 *to, const u32 *from, int stride) {
	to[threadIdx.x] = from[threadIdx.x * stride]; // a stride of more than 1 leaves the allocation
}

KERNEL(32) misaligned(uint4 *to, const char *from, int offset) {
	to[threadIdx.x] = *(const uint4 *)(from + offset + 16 * threadIdx.x);
}

// reverse needs the barrier: threads read values of other threads.
KERNEL(64) reverse(u32 *to, const u32 *from, int barrier) {
	__shared__ u32 s[64];
	s[63 - threadIdx.x] = 0;
	__syncthreads();
	s[threadIdx.x] = from[threadIdx.x];
	if (barrier) __syncthreads();
	to[threadIdx.x] = s[63 - threadIdx.x];
}

// overwrite needs a second barrier: the second round overwrites values that other threads still read.
KERNEL(64) overwrite(u32 *to, const u32 *from, int barrier) {
	__shared__ u32 s[64];
	u32 sum = 0;
	for (int i = 0; i < 2; i++) {
		s[threadIdx.x] = from[threadIdx.x] + i;
		__syncthreads();
		sum += s[63 - threadIdx.x];
		if (barrier) __syncthreads();
	}
	to[threadIdx.x] = sum;
}

KERNEL(64) divergent(u32 *to, const u32 *from, int threads) {
	__shared__ u32 s[64];
	s[threadIdx.x] = from[threadIdx.x];
	if (threadIdx.x < threads) {
		__syncthreads();
		to[threadIdx.x] = s[63 - threadIdx.x];
		__syncthreads();
	} else {
		to[threadIdx.x] = 1;
	}
}

KERNEL(64) lonely_shuffle(u32 *to, const u32 *from, int lanes) {
	u32 x = from[threadIdx.x];
	if (threadIdx.x % 32 < lanes) x += __shfl_xor_sync(FULL, x, 1);
	to[threadIdx.x] = x;
}

// staged copies through shared memory. Mode 1 omits the commit, mode 2 the wait.
KERNEL(32) staged(uint4 *to, const uint4 *from, int mode) {
	__shared__ uint4 s[32];
	copy16(&s[threadIdx.x], from + threadIdx.x, true);
	if (mode != 1) copy_commit();
	if (mode != 2) copy_wait<0>();
	to[threadIdx.x] = s[threadIdx.x];
}

KERNEL(32) unwritten(u32 *to, int first) {
	__shared__ u32 s[32];
	if (threadIdx.x >= first) s[threadIdx.x] = threadIdx.x;
	to[threadIdx.x] = s[threadIdx.x];
}

KERNEL(32) same_word(u32 *to, int blocks) {
	if (threadIdx.x == 0) to[(int)blockIdx.x % blocks] = blockIdx.x;
}

KERNEL(32) endless(u32 *flag) {
	u32 x = *flag;
	while (x) x = x * 3 | 1;
	*flag = x;
}

KERNEL(32) divide(int *to, int a, int b) { to[threadIdx.x] = a / b; }

// gemv multiplies a matrix by a vector with one fused multiply-add per product: sums are close to those of gemm.cu, with
// other bits. Grid: columns.
KERNEL(32) gemv(float *C, const u16 *A, const u16 *W, int K) {
	float sum = 0;
	for (int k = threadIdx.x; k < K; k += 32) sum = __fmaf_rn(widen(A[k]), widen(W[blockIdx.x * K + k]), sum);
	sum = warp_sum(sum);
	if (threadIdx.x == 0) C[blockIdx.x] = sum;
}

// gemv_sliced adds the same slices of K as gemm.cu, but computes each with ascending fused multiply-adds.
KERNEL(32) gemv_sliced(float *C, const u16 *A, const u16 *W, int K, int slices) {
	if (threadIdx.x) return;
	float sum = 0;
	for (int s = 0; s < slices; s++) {
		float part = 0;
		for (int k = s * (K / slices); k < (s + 1) * (K / slices); k++) part = __fmaf_rn(widen(A[k]), widen(W[blockIdx.x * K + k]), part);
		sum = __fadd_rn(sum, part);
	}
	C[blockIdx.x] = sum;
}
