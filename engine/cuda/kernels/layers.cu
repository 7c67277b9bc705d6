// The small kernels of a layer: embedding, RMSNorm, rotary embedding with the write of K and V.
#include "common.cuh"

// Types of an embedding table.
enum { BF16 = 0, F16 = 1, F32 = 2 };

__device__ __forceinline__ float from_f16(u16 h) {
	float x;
	asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
	return x;
}

// embed writes x[t] = table[token], exactly. A token below 0 is deferred: the last token sampled for its slot is used
// instead. If that sample failed, the row of the batch fails too. Rows of the table are padded. dim is even. Grid: tokens.
KERNEL(256) embed(float *x, int *failed, const void *table, const int *tokens, const int *slots, const int *rows, const int *last, int dim, int type, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	int t = blockIdx.x;
	int token = tokens[t];
	if (token < 0) token = last[slots[t]];
	if (token < 0) {
		if (threadIdx.x == 0) atomicOr(failed + rows[t], 1);
		token = 0;
	}
	size_t row = (size_t)token * (padded(dim) / 2); // in pairs
	float2 *out = (float2 *)(x + (size_t)t * dim);
	for (int i = threadIdx.x; i < dim / 2; i += blockDim.x) {
		if (type == F32) {
			out[i] = ((const float2 *)table)[row + i];
			continue;
		}
		u32 pair = ((const u32 *)table)[row + i];
		out[i] = type == BF16 ? make_float2(widen_lo(pair), widen_hi(pair)) : make_float2(from_f16((u16)pair), from_f16(pair >> 16));
	}
}

// rmsnorm writes out[i] = bf16(x[row]/rms · w). Row i of out is row index[i] of x, or row i if index is null. A negative
// index -1-k means row k of kept. Order of the sum: thread i adds elements i, i+256, …; then a tree in each warp; then
// the warps in ascending order. The first HELD elements of a thread stay in registers: their loads don't wait for each
// other, and a row of up to 4,096 is read once. Rows of out are padded. Grid: rows.
enum { HELD = 16 };
KERNEL(256) rmsnorm(u16 *out, const float *x, const float *w, const int *index, const float *kept, int dim, float eps, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	__shared__ float part[8];
	int pick = index ? index[blockIdx.x] : blockIdx.x;
	const float *row = pick < 0 ? kept + (size_t)(-1 - pick) * dim : x + (size_t)pick * dim;
	float sum = 0;
	float held[HELD];
#pragma unroll
	for (int j = 0; j < HELD; j++) {
		int i = threadIdx.x + 256 * j;
		held[j] = i < dim ? row[i] : 0;
	}
#pragma unroll
	for (int j = 0; j < HELD; j++) sum = __fmaf_rn(held[j], held[j], sum);
	for (int i = threadIdx.x + 256 * HELD; i < dim; i += 256) sum = __fmaf_rn(row[i], row[i], sum);
	sum = warp_sum(sum);
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = part[0];
#pragma unroll
	for (int i = 1; i < 8; i++) sum = __fadd_rn(sum, part[i]);
	float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)dim), eps)));
	out += (size_t)blockIdx.x * padded(dim);
#pragma unroll
	for (int j = 0; j < HELD; j++) {
		int i = threadIdx.x + 256 * j;
		if (i < dim) out[i] = narrow(__fmul_rn(__fmul_rn(held[j], r), w[i]));
	}
	for (int i = threadIdx.x + 256 * HELD; i < dim; i += 256) out[i] = narrow(__fmul_rn(__fmul_rn(row[i], r), w[i]));
	for (int i = dim + threadIdx.x; i < padded(dim); i += 256) out[i] = 0;
}

// keep copies rows of x to kept, for a later step. An entry is {slot, row of x}. Grid: entries.
KERNEL(256) keep(float *kept, const float *x, const int2 *entries, int dim) {
	int2 e = entries[blockIdx.x];
	for (int i = threadIdx.x; i < dim; i += 256) kept[(size_t)e.x * dim + i] = x[(size_t)e.y * dim + i];
}

// check_finite fails each row of the batch with a token whose x has NaN or infinity. Grid: tokens.
KERNEL(256) check_finite(int *failed, const float *x, const int *rows, int dim, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	const float *row = x + (size_t)blockIdx.x * dim;
	bool bad = false;
	for (int i = threadIdx.x; i < dim; i += 256) bad |= __fsub_rn(row[i], row[i]) != 0;
	if (__ballot_sync(FULL, bad) && threadIdx.x % 32 == 0) atomicOr(failed + rows[blockIdx.x], 1);
}

// rope_write writes the heads of a token's projections: query heads to q, key and value heads to their page. Query and
// key heads get RMSNorm if q_norm and k_norm are not null, then the rotary embedding. A page is
// [layer][K|V][kv_head][slot][head_dim]; position p of a slot is in page table[slot·pages_per_slot + p>>page_shift].
// Grid: (tokens, heads + 2·kv_heads), one warp each.
KERNEL(32) rope_write(u16 *q, u16 *pool, const float *qkv, const float *q_norm, const float *k_norm, const float *cosine,
                      const float *sine, const int *slots, const int *positions, const int *table, size_t page_elements,
                      size_t layer_offset, int pages_per_slot, int page_shift, int heads, int kv_heads, int head_dim, float eps, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	int t = blockIdx.x, h = blockIdx.y, lane = threadIdx.x, half = head_dim / 2;
	const float *in = qkv + ((size_t)t * (heads + 2 * kv_heads) + h) * head_dim;
	int pos = positions[t];
	bool is_query = h < heads, is_value = h >= heads + kv_heads;
	u16 *out = q + ((size_t)t * heads + h) * head_dim;
	if (!is_query) {
		int page = table[(size_t)slots[t] * pages_per_slot + (pos >> page_shift)];
		int slot = pos & ((1 << page_shift) - 1);
		out = pool + page * page_elements + layer_offset + (((size_t)(h - heads) << page_shift) + slot) * head_dim;
	}
	const float *norm = is_query ? q_norm : k_norm;
	float r = 1;
	if (norm && !is_value) {
		float sum = 0;
		for (int i = lane; i < half; i += 32) {
			sum = __fmaf_rn(in[i], in[i], sum);
			sum = __fmaf_rn(in[i + half], in[i + half], sum);
		}
		sum = warp_sum(sum);
		r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)head_dim), eps)));
	}
	for (int i = lane; i < half; i += 32) {
		float a = in[i], b = in[i + half];
		if (norm && !is_value) {
			a = __fmul_rn(__fmul_rn(a, r), norm[i]);
			b = __fmul_rn(__fmul_rn(b, r), norm[i + half]);
		}
		if (!is_value) {
			float c = cosine[(size_t)pos * half + i], s = sine[(size_t)pos * half + i];
			float x = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
			b = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
			a = x;
		}
		out[i] = narrow(a);
		out[i + half] = narrow(b);
	}
}
