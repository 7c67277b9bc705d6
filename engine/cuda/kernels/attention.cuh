// Attention over pages, with grouped queries.
//
// One order for prompts and for decoding: positions are cut into splits of 256 and tiles of 64 at absolute
// multiples. Within a split, tiles are added in ascending order with a running maximum (online softmax). The state of
// a split is a maximum, a sum and an unnormalised output; states are merged in ascending order. K and V are read from
// pages only. A row is one query head of one token. The query heads of one KV head, times some tokens, are packed into
// the 16 rows of an mma. Bits depend neither on which block computes a split or a row, nor on size and placement of pages.
#pragma once
#include "common.cuh"

enum { TILE = 64, SPLIT = 256, THREADS = 128 };

struct Cache {
	const u16 *pool;   // pages, [layer][K|V][kv_head][slot][head_dim] each
	const int *table;  // [slot][pages_per_slot]
	size_t page_elements, layer_offset;
	int pages_per_slot, page_shift, kv_heads;
};

// Tile describes a tile buffer: 64 rows of K, then 64 of V, in pieces of 8 elements. Two buffers alternate. The 8 rows
// that ldmatrix reads together must be in different banks: if the number of pieces is a power of two, rows are
// swizzled, else rows are padded to an odd number of pieces.
template <int HD> struct Tile {
	static const int pieces = HD / 8, turn = pieces < 8 ? pieces - 1 : 7;
	static const bool swizzled = (pieces & (pieces - 1)) == 0;
	static const int places = swizzled ? pieces : pieces | 1;
	static const int size = TILE * places; // of K, and of V after it
};
template <int HD> __device__ __forceinline__ int place(int row, int piece) {
	typedef Tile<HD> T;
	return row * T::places + (T::swizzled ? piece ^ (row & T::turn) : piece);
}

// fetch starts copying the tile at position p0 of slot's K and V. Positions from end on become zeros: their memory may
// hold values of another sequence.
template <int HD>
__device__ __forceinline__ void fetch(uint4 *tile, const Cache &c, int slot, int head, int p0, int end) {
	const int pieces = HD / 8;
#pragma unroll 2
	for (int e = threadIdx.x; e < 2 * TILE * pieces; e += THREADS) {
		int kind = e / (TILE * pieces), row = e / pieces % TILE, piece = e % pieces, pos = p0 + row;
		const u16 *from = c.pool;
		if (pos < end) {
			int page = c.table[(size_t)slot * c.pages_per_slot + (pos >> c.page_shift)];
			int in_page = pos & ((1 << c.page_shift) - 1);
			from += page * c.page_elements + c.layer_offset +
			        (((size_t)(kind * c.kv_heads + head) << c.page_shift) + in_page) * HD + piece * 8;
		}
		copy16(tile + kind * Tile<HD>::size + place<HD>(row, piece), from, pos < end);
	}
}

// State holds maximum, sum and COLS columns of output of rows l/4 and l/4+8 of a warp's tile, l being the lane.
template <int COLS> struct State {
	float max[2], sum[2], out[COLS / 8][4];
	__device__ __forceinline__ void clear() {
		max[0] = max[1] = NEG_INF;
		sum[0] = sum[1] = 0;
#pragma unroll
		for (int j = 0; j < COLS / 8; j++) out[j][0] = out[j][1] = out[j][2] = out[j][3] = 0;
	}
};

// merge adds the maximum and sum of a later split to those of a row. It returns the factors of both outputs.
__device__ __forceinline__ float2 merge(float &max, float &sum, float max1, float sum1) {
	if (max1 == NEG_INF) return make_float2(1, 0);
	float m = fmaxf(max, max1), a = exp32(__fsub_rn(max, m)), b = exp32(__fsub_rn(max1, m));
	max = m;
	sum = __fmaf_rn(sum, a, __fmul_rn(sum1, b));
	return make_float2(a, b);
}

// attend adds one tile to a warp's state of 16 rows and COLS columns from col0. pos has the positions of the lane's two rows.
template <int HD, int COLS>
__device__ __forceinline__ void attend(State<COLS> &s, const uint4 *tile, const u32 (&q)[HD / 16][4], const int (&pos)[2],
                                              int p0, int col0, float scale) {
	int lane = threadIdx.x % 32, quad = lane % 4;
	float score[8][4];
#pragma unroll
	for (int j = 0; j < 8; j++) {
		score[j][0] = score[j][1] = score[j][2] = score[j][3] = 0;
#pragma unroll
		for (int k = 0; k < HD / 16; k++) {
			u32 b0, b1, at = shared_address(tile + place<HD>(8 * j + lane % 8, 2 * k + lane / 8 % 2));
			asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(at) : "memory");
			mma(score[j], q[k][0], q[k][1], q[k][2], q[k][3], b0, b1);
		}
	}
	u32 p[8][2];
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float top = NEG_INF;
#pragma unroll
		for (int j = 0; j < 8; j++)
#pragma unroll
			for (int c = 0; c < 2; c++) {
				float v = __fmul_rn(score[j][2 * r + c], scale);
				v = p0 + 8 * j + 2 * quad + c <= pos[r] ? v : NEG_INF;
				score[j][2 * r + c] = v;
				top = fmaxf(top, v);
			}
		top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
		top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
		bool any = p0 <= pos[r]; // a row before the tile does not change
		float m = fmaxf(s.max[r], top), shrink = any ? exp32(__fsub_rn(s.max[r], m)) : 1.0f, sum = 0;
#pragma unroll
		for (int j = 0; j < 8; j++) {
			float e0 = any ? exp32(__fsub_rn(score[j][2 * r], m)) : 0.0f, e1 = any ? exp32(__fsub_rn(score[j][2 * r + 1], m)) : 0.0f;
			sum = __fadd_rn(__fadd_rn(sum, e0), e1);
			p[j][r] = narrow2(e0, e1);
		}
		sum = __fadd_rn(sum, __shfl_xor_sync(FULL, sum, 1));
		sum = __fadd_rn(sum, __shfl_xor_sync(FULL, sum, 2));
		s.max[r] = any ? m : s.max[r];
		s.sum[r] = __fmaf_rn(s.sum[r], shrink, sum);
#pragma unroll
		for (int j = 0; j < COLS / 8; j++) {
			s.out[j][2 * r] = __fmul_rn(s.out[j][2 * r], shrink);
			s.out[j][2 * r + 1] = __fmul_rn(s.out[j][2 * r + 1], shrink);
		}
	}
	const uint4 *v = tile + Tile<HD>::size;
#pragma unroll
	for (int j = 0; j < COLS / 8; j++) {
		if (HD % COLS && col0 + 8 * j >= HD) break; // the last warp has fewer columns
#pragma unroll
		for (int k = 0; k < TILE / 16; k++) {
			u32 b0, b1, at = shared_address(v + place<HD>(16 * k + lane % 16, col0 / 8 + j));
			asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(at) : "memory");
			mma(s.out[j], p[2 * k][0], p[2 * k][1], p[2 * k + 1][0], p[2 * k + 1][1], b0, b1);
		}
	}
}

// split adds the tiles of one split, up to end. All warps must call it: a warp without columns still copies.
template <int HD, int COLS>
__device__ __forceinline__ void split(State<COLS> &s, uint4 *tiles, const Cache &c, const u32 (&q)[HD / 16][4],
                                             const int (&pos)[2], int slot, int head, int p0, int end, int col0, float scale) {
	const int size = 2 * Tile<HD>::size;
	int count = (min(end, p0 + SPLIT) - p0 + TILE - 1) / TILE;
	s.clear();
#pragma unroll 1
	for (int i = -1; i < count; i++) {
		if (i + 1 < count) fetch<HD>(tiles + (i + 1) % 2 * size, c, slot, head, p0 + (i + 1) * TILE, end);
		copy_commit();
		if (i < 0) continue;
		copy_wait<1>();
		__syncthreads();
		if (col0 < HD) attend<HD, COLS>(s, tiles + i % 2 * size, q, pos, p0 + i * TILE, col0, scale);
		__syncthreads();
	}
}

// Rows holds token and query head of a lane's two rows. Row r of a tile is token r/group, query head r%group of the KV head.
struct Rows {
	int token[2], head[2]; // token -1: no such row
};
__device__ __forceinline__ Rows rows_of(const int *tokens, int first, int count, int group, int kv_head, int row0) {
	Rows r;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		int row = row0 + threadIdx.x % 32 / 4 + 8 * i, n = row / group;
		r.token[i] = n < count ? (tokens ? tokens[first + n] : first + n) : -1;
		r.head[i] = kv_head * group + row % group;
	}
	return r;
}

template <int HD>
__device__ __forceinline__ void load_queries(u32 (&q)[HD / 16][4], int (&pos)[2], const Rows &r, const u16 *Q, const int *positions, int heads) {
	int quad = threadIdx.x % 4;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		pos[i] = r.token[i] < 0 ? -1 : positions[r.token[i]];
		const u32 *from = (const u32 *)(Q + ((size_t)r.token[i] * heads + r.head[i]) * HD);
#pragma unroll
		for (int k = 0; k < HD / 16; k++) {
			q[k][i] = r.token[i] < 0 ? 0 : from[8 * k + quad];
			q[k][i + 2] = r.token[i] < 0 ? 0 : from[8 * k + quad + 4];
		}
	}
}

// out_of returns the address of the output of a token and head. Rows are padded, because a product reads them.
__device__ __forceinline__ u16 *out_of(u16 *out, int token, int head, int heads, int head_dim) {
	return out + (size_t)token * padded(heads * head_dim) + head * head_dim;
}

// normal returns out/sum. Adding zero turns -0 (from an underflow) into +0.
__device__ __forceinline__ float normal(float out, float sum) { return __fadd_rn(__fdiv_rn(out, sum), 0.0f); }

// prefill computes attention of prompts. An item is successive tokens of one slot, {first token, count}, with
// count·group <= 64. One block computes all splits of an item. Grid: (items, kv_heads).
template <int HD>
__device__ __forceinline__ void prefill(u16 *out, const u16 *Q, const Cache &c, const int2 *items, const int *slots,
                                               const int *positions, int heads, float scale) {
	extern __shared__ uint4 tiles[];
	int2 item = items[blockIdx.x];
	int kv_head = blockIdx.y, group = heads / c.kv_heads, slot = slots[item.x], end = positions[item.x + item.y - 1] + 1;
	Rows r = rows_of(0, item.x, item.y, group, kv_head, threadIdx.x / 32 * 16);
	u32 q[HD / 16][4];
	int pos[2];
	load_queries<HD>(q, pos, r, Q, positions, heads);
	State<HD> all, s;
	all.clear();
#pragma unroll 1
	for (int p0 = 0; p0 < end; p0 += SPLIT) {
		split<HD, HD>(s, tiles, c, q, pos, slot, kv_head, p0, end, 0, scale);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float2 by = merge(all.max[i], all.sum[i], s.max[i], s.sum[i]);
#pragma unroll
			for (int j = 0; j < HD / 8; j++)
#pragma unroll
				for (int k = 2 * i; k < 2 * i + 2; k++) all.out[j][k] = __fmaf_rn(all.out[j][k], by.x, __fmul_rn(s.out[j][k], by.y));
		}
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (r.token[i] < 0) continue;
		u32 *to = (u32 *)out_of(out, r.token[i], r.head[i], heads, HD) + threadIdx.x % 4;
#pragma unroll
		for (int j = 0; j < HD / 8; j++) to[4 * j] = narrow2(normal(all.out[j][2 * i], all.sum[i]), normal(all.out[j][2 * i + 1], all.sum[i]));
	}
	if (HD % 32 && kv_head == c.kv_heads - 1) {
		int pad = padded(heads * HD) - heads * HD;
		for (int e = threadIdx.x; e < item.y * pad; e += THREADS) out_of(out, item.x + e / pad, heads, heads, HD)[e % pad] = 0;
	}
}

// splits computes one item of decode for up to ROWS packed rows. If ROWS is 16, each warp computes a quarter of the
// columns; if it is 64, each warp computes 16 rows.
template <int HD, int ROWS>
__device__ __forceinline__ void splits(float *states, const u16 *Q, const Cache &c, int4 item, const int *tokens, const int *slots,
                                              const int *positions, int heads, int max_splits, float scale) {
	extern __shared__ uint4 tiles[];
	const int COLS = ROWS == 64 ? HD : (HD / 8 + 3) / 4 * 8;
	int warp = threadIdx.x / 32, kv_head = blockIdx.y, group = heads / c.kv_heads, slot = slots[tokens[item.x]];
	int col0 = ROWS == 64 ? 0 : warp * COLS;
	Rows r = rows_of(tokens, item.x, item.y, group, kv_head, ROWS == 64 ? warp * 16 : 0);
	u32 q[HD / 16][4];
	int pos[2];
	load_queries<HD>(q, pos, r, Q, positions, heads);
	State<COLS> s;
	split<HD, COLS>(s, tiles, c, q, pos, slot, kv_head, item.z * SPLIT, item.w, col0, scale);
	if (col0 >= HD) return;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (r.token[i] < 0) continue;
		float *to = states + (((size_t)r.token[i] * max_splits + item.z) * heads + r.head[i]) * (HD + 2);
		if (col0 == 0 && threadIdx.x % 4 == 0) *(float2 *)to = make_float2(s.max[i], s.sum[i]);
#pragma unroll
		for (int j = 0; j < COLS / 8; j++) {
			if (HD % COLS && col0 + 8 * j >= HD) break;
			*(float2 *)(to + 2 + col0 + 8 * j + threadIdx.x % 4 * 2) = make_float2(s.out[j][2 * i], s.out[j][2 * i + 1]);
		}
	}
}

// decode computes attention of decoding tokens. An item is one split of one token, or of several tokens with the same
// pages in that split, which are then read once: {index in tokens, count, split, last position + 1}. States are written
// to states[token][split][head]: maximum, sum, then HD outputs. If live is not null, it holds the number of items and
// max_splits. Grid: (items, kv_heads).
template <int HD>
__device__ __forceinline__ void decode(float *states, const u16 *Q, const Cache &c, const int4 *items, const int *tokens, const int *slots,
                                              const int *positions, int heads, int max_splits, float scale, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	if (live) max_splits = live[1];
	int4 item = items[blockIdx.x];
	if (item.y * (heads / c.kv_heads) <= 16) splits<HD, 16>(states, Q, c, item, tokens, slots, positions, heads, max_splits, scale);
	else splits<HD, 64>(states, Q, c, item, tokens, slots, positions, heads, max_splits, scale);
}

#define CACHE_ARGS const u16 *pool, const int *table, size_t page_elements, size_t layer_offset, int pages_per_slot, int page_shift, int kv_heads
#define CACHE Cache{pool, table, page_elements, layer_offset, pages_per_slot, page_shift, kv_heads}
// With two blocks per multiprocessor a thread can use all 255 registers; without this bound ptxas spills.
#define BOUNDED extern "C" __global__ void __launch_bounds__(THREADS, 2)
#define KERNELS(HD)                                                                                                              \
	BOUNDED attn_prefill_##HD(u16 *out, const u16 *Q, CACHE_ARGS, const int2 *items, const int *slots,                   \
	                                  const int *positions, int heads, float scale) {                                            \
		prefill<HD>(out, Q, CACHE, items, slots, positions, heads, scale);                                                       \
	}                                                                                                                            \
	BOUNDED attn_decode_##HD(float *states, const u16 *Q, CACHE_ARGS, const int4 *items, const int *tokens,              \
	                                 const int *slots, const int *positions, int heads, int max_splits, float scale, const int *live) { \
		decode<HD>(states, Q, CACHE, items, tokens, slots, positions, heads, max_splits, scale, live);                           \
	}

