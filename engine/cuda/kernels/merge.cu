// The last step of attention for decoding tokens, for heads of up to 128.
#include "attention.cuh"

// attn_merge merges the splits of the decoding tokens, which are the first tokens of the step. A thread computes one
// column. Grid: (tokens, heads).
KERNEL(128) attn_merge(u16 *out, const float *states, const int *positions, int heads, int head_dim, int max_splits, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	if (live) max_splits = live[1];
	int t = blockIdx.x, h = blockIdx.y;
	if (h == heads - 1)
		for (int i = heads * head_dim + threadIdx.x; i < padded(heads * head_dim); i += blockDim.x) out[(size_t)t * padded(heads * head_dim) + i] = 0;
	if (threadIdx.x >= head_dim) return;
	const float *from = states + ((size_t)t * max_splits * heads + h) * (head_dim + 2);
	float max = NEG_INF, sum = 0, o = 0;
#pragma unroll 1
	for (int i = 0; i <= positions[t] / SPLIT; i++, from += (size_t)heads * (head_dim + 2)) {
		float2 by = merge(max, sum, from[0], from[1]);
		o = __fmaf_rn(o, by.x, __fmul_rn(from[2 + threadIdx.x], by.y));
	}
	out_of(out, t, h, heads, head_dim)[threadIdx.x] = narrow(normal(o, sum));
}
