// Pages, page tables and the state of slots.
#include "common.cuh"

// copy_strip copies pieces of 16 bytes with all threads of a block.
__device__ __forceinline__ void copy_strip(uint4 *dst, const uint4 *src, size_t pieces) {
	for (size_t i = threadIdx.x; i < pieces; i += blockDim.x) dst[i] = src[i];
}

// page_copy copies the first z slots of page x to page y, in all strips. A strip holds the slots of one KV head of
// K or V of one layer. No copy of a launch may write a page of another. Grid: (copies, strips).
KERNEL(128) page_copy(uint4 *pool, const int3 *copies, size_t page_pieces, int strip_pieces, int slot_pieces) {
	int3 c = copies[blockIdx.x];
	size_t strip = (size_t)blockIdx.y * strip_pieces;
	copy_strip(pool + c.y * page_pieces + strip, pool + c.x * page_pieces + strip, (size_t)c.z * slot_pieces);
}

// page_gather copies pages to a buffer, one after another; page_scatter copies them back. A block copies one part of a
// page. Grid: (pages, parts).
KERNEL(256) page_gather(uint4 *buffer, const uint4 *pool, const int *pages, size_t page_pieces) {
	size_t part = (page_pieces + gridDim.y - 1) / gridDim.y, from = blockIdx.y * part;
	if (from >= page_pieces) return;
	copy_strip(buffer + blockIdx.x * page_pieces + from, pool + pages[blockIdx.x] * page_pieces + from, min(part, page_pieces - from));
}
KERNEL(256) page_scatter(uint4 *pool, const uint4 *buffer, const int *pages, size_t page_pieces) {
	size_t part = (page_pieces + gridDim.y - 1) / gridDim.y, from = blockIdx.y * part;
	if (from >= page_pieces) return;
	copy_strip(pool + pages[blockIdx.x] * page_pieces + from, buffer + blockIdx.x * page_pieces + from, min(part, page_pieces - from));
}

// table_write sets index y of slot x's table to page z. Grid: entries/256.
KERNEL(256) table_write(int *table, const int3 *entries, int count, int pages_per_slot, const int *live) {
	int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= (live ? *live : count)) return;
	int3 e = entries[i];
	table[(size_t)e.x * pages_per_slot + e.y] = e.z;
}

// slot_clear resets slots for new sequences: no last token, and all counts zero. Grid: (slots, parts).
KERNEL(256) slot_clear(int *last, u32 *counts, const int *slots, int vocab) {
	int slot = slots[blockIdx.x];
	if (blockIdx.y == 0 && threadIdx.x == 0) last[slot] = -1;
	for (int t = blockIdx.y * 256 + threadIdx.x; t < vocab; t += gridDim.y * 256) counts[(size_t)slot * vocab + t] = 0;
}

// slot_fail clears the last token of slots whose row has failed. Grid: rows/256.
KERNEL(256) slot_fail(int *last, const int *failed, const int *slots, int rows, const int *live) {
	int i = blockIdx.x * 256 + threadIdx.x;
	if (i < (live ? *live : rows) && failed[i]) last[slots[i]] = -1;
}

// slot_count counts tokens for penalties. An entry is {slot, token, 1 if the token is of the prompt}. Bit 31 of a count
// is set if the prompt has the token; the other bits count it in the output. Grid: entries/256.
KERNEL(256) slot_count(u32 *counts, const int3 *entries, int count, int vocab) {
	int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= count) return;
	int3 e = entries[i];
	u32 *c = counts + (size_t)e.x * vocab + e.y;
	if (e.z) atomicOr(c, 0x80000000u);
	else atomicAdd(c, 1u);
}
