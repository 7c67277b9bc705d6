// The last step of attention for decoding tokens, for heads of up to 128.
#include "attention.cuh"

// attn_merge merges the splits of tokens [0, gridDim.x). First each thread computes the factors of one split, then each
// thread merges one column in the order of splits: only one multiplication and addition for a split depend on the split
// before it. Grid: (tokens, heads).
enum { MERGED = 128, AHEAD = 16 };
KERNEL(MERGED) attn_merge(u16 *out, const float *states, const int *positions, int heads, int head_dim, int max_splits, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	if (live) max_splits = live[1];
	__shared__ float2 by[MERGED]; // factors of the output so far and of a split's output
	__shared__ float sums[MERGED], tops[MERGED / 32];
	int t = blockIdx.x, h = blockIdx.y, i = threadIdx.x, lane = i % 32, warp = i / 32, splits = positions[t] / SPLIT + 1;
	if (h == heads - 1)
		for (int e = heads * head_dim + i; e < padded(heads * head_dim); e += MERGED) out[(size_t)t * padded(heads * head_dim) + e] = 0;
	size_t stride = (size_t)heads * (head_dim + 2);
	const float *from = states + ((size_t)t * max_splits * heads + h) * (head_dim + 2);
	float max = NEG_INF, sum = 0, o = 0;
#pragma unroll 1
	for (int base = 0; base < splits; base += MERGED, from += MERGED * stride) {
		int n = min(MERGED, splits - base);
		float2 s = i < n ? *(const float2 *)(from + i * stride) : make_float2(NEG_INF, 0);
		float before = max, top = s.x; // before becomes the maximum of the splits before i
#pragma unroll
		for (int d = 1; d < 32; d <<= 1) {
			float other = __shfl_xor_sync(FULL, top, d);
			if (lane & d) before = fmaxf(before, other);
			top = fmaxf(top, other);
		}
		__syncthreads(); // all have read the factors of the splits before base
		if (lane == 0) tops[warp] = top;
		__syncthreads();
#pragma unroll
		for (int w = 0; w < MERGED / 32; w++) {
			if (w < warp) before = fmaxf(before, tops[w]);
			max = fmaxf(max, tops[w]);
		}
		float ignored = 0;
		by[i] = merge(before, ignored, s.x, s.y);
		sums[i] = __fmul_rn(s.y, by[i].y);
		__syncthreads();
		if (i >= head_dim) continue;
#pragma unroll 1
		for (int k = 0; k < n; k += AHEAD) {
			float x[AHEAD];
#pragma unroll
			for (int j = 0; j < AHEAD; j++) x[j] = k + j < n ? from[(k + j) * stride + 2 + i] : 0;
#pragma unroll
			for (int j = 0; j < AHEAD; j++) {
				if (k + j >= n) break;
				o = __fmaf_rn(o, by[k + j].x, __fmul_rn(x[j], by[k + j].y));
				sum = __fmaf_rn(sum, by[k + j].x, sums[k + j]);
			}
		}
	}
	if (i < head_dim) out_of(out, t, h, heads, head_dim)[i] = narrow(normal(o, sum));
}
