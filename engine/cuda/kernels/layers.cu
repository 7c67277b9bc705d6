// The small kernels of a layer: embedding, RMSNorm, rotary embedding with the write of K and V.
#include "common.cuh"

// embed writes x[t] = table[token]. A token below 0 is deferred: the last one sampled for its slot. If that one
// failed there is none: the row of the batch fails. Rows of the table are padded. Grid: tokens. dim is even.
KERNEL(256) embed(float *x, int *failed, const u16 *table, const int *tokens, const int *slots, const int *rows, const int *last, int dim, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	int t = blockIdx.x;
	int token = tokens[t];
	if (token < 0) token = last[slots[t]];
	if (token < 0) {
		if (threadIdx.x == 0) atomicOr(failed + rows[t], 1);
		token = 0;
	}
	const u32 *row = (const u32 *)(table + (size_t)token * padded(dim));
	float2 *out = (float2 *)(x + (size_t)t * dim);
	for (int i = threadIdx.x; i < dim / 2; i += blockDim.x) {
		u32 pair = row[i];
		out[i] = make_float2(widen_lo(pair), widen_hi(pair));
	}
}

// rmsnorm writes out[i] = bf16(x[row]/rms · w), the rows picked by index (or all, if it is null): the head
// needs some rows only. Index -1-i picks row i of kept. Order of the sum: thread i takes elements i, i+256, …; a tree in each warp; the
// warps ascending. Rows of out are padded. Grid: rows.
KERNEL(256) rmsnorm(u16 *out, const float *x, const u16 *w, const int *index, const float *kept, int dim, float eps, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	__shared__ float part[8];
	int pick = index ? index[blockIdx.x] : blockIdx.x;
	const float *row = pick < 0 ? kept + (size_t)(-1 - pick) * dim : x + (size_t)pick * dim;
	float sum = 0;
	for (int i = threadIdx.x; i < dim; i += 256) sum = __fmaf_rn(row[i], row[i], sum);
	sum = warp_sum(sum);
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = part[0];
#pragma unroll
	for (int i = 1; i < 8; i++) sum = __fadd_rn(sum, part[i]);
	float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)dim), eps)));
	out += (size_t)blockIdx.x * padded(dim);
	for (int i = threadIdx.x; i < dim; i += 256) out[i] = narrow(__fmul_rn(__fmul_rn(row[i], r), widen(w[i])));
	for (int i = dim + threadIdx.x; i < padded(dim); i += 256) out[i] = 0;
}

// keep copies rows of x to kept, where they stay for a later step: entry {slot, row of x}. Grid: entries.
KERNEL(256) keep(float *kept, const float *x, const int2 *entries, int dim) {
	int2 e = entries[blockIdx.x];
	for (int i = threadIdx.x; i < dim; i += 256) kept[(size_t)e.x * dim + i] = x[(size_t)e.y * dim + i];
}

// check_finite fails the rows of the batch that have a token whose x is not finite. Grid: tokens.
KERNEL(256) check_finite(int *failed, const float *x, const int *rows, int dim, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	const float *row = x + (size_t)blockIdx.x * dim;
	bool bad = false;
	for (int i = threadIdx.x; i < dim; i += 256) bad |= __fsub_rn(row[i], row[i]) != 0;
	if (__ballot_sync(FULL, bad) && threadIdx.x % 32 == 0) atomicOr(failed + rows[blockIdx.x], 1);
}

// rope_write takes each head of a token's projections: query heads are normed if q_norm is given, rotated and
// written to q; key heads the same and written to their page; value heads are written to theirs. A page is
// [layer][K|V][kv_head][slot][head_dim]; the token at position p of a slot is in page
// table[slot·pages_per_slot + p>>page_shift]. Grid: (tokens, heads + 2·kv_heads), one warp each.
KERNEL(32) rope_write(u16 *q, u16 *pool, const float *qkv, const u16 *q_norm, const u16 *k_norm, const float *cosine,
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
	const u16 *norm = is_query ? q_norm : k_norm;
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
			a = __fmul_rn(__fmul_rn(a, r), widen(norm[i]));
			b = __fmul_rn(__fmul_rn(b, r), widen(norm[i + half]));
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
