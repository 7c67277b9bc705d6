// Random weights made on the device, to measure the speed of a shape without a model.
#include "common.cuh"

// mix is a permutation of 64 bits whose outputs look random: the finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
__device__ __forceinline__ u64 mix(u64 x) {
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

// make_weights writes 4n values in bf16 of either sign and of magnitude 2^-6 to 2^-5, near 1/sqrt(4096). Value i depends
// on seed and i only. A thread writes four values. Grid: n/256, rounded up.
KERNEL(256) make_weights(uint2 *out, u64 n, u64 seed) {
	u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
	if (i >= n) return;
	u64 bits = (mix(seed ^ mix(i)) & 0x807f807f807f807full) | 0x3c803c803c803c80ull;
	out[i] = make_uint2((u32)bits, (u32)(bits >> 32));
}
