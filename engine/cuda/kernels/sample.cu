// Sampling and log-probabilities. Equal logits give the same token as on the CPU: functions and random counters are
// the same, and sums whose order could vary are sums of integers.
#include "common.cuh"

// SAMPLE_THREADS is the most threads of a block of sample; it may be any power of two from 32 on.
enum { SAMPLE_THREADS = 1024, LOGPROB_THREADS = 512, WARPS = SAMPLE_THREADS / 32, BINS = 2048, LISTED = 1024 };
enum { SAMPLED = 0, NOT_FINITE = 1, NO_TOKEN = 2, FAILED = 3, REFUSED = 4 }; // how a row ended
enum { PENALISED = 1, DRAW = 2 };                               // flags

// Row holds the sampling parameters of a row (engine.SamplingParams), its random counter, and the indices of its biases
// and its mask.
struct Row {
	u64 seed;
	int slot, index; // index is the random counter
	float temperature, top_p, min_p, repetition, presence, frequency;
	int top_k, flags;
	int bias_first, bias_count; // in biases
	int mask;      // index of the mask, or -1
	int batch_row; // its entry in failed
	// The row samples after a draft if the sample before it equals the draft: that sample, of an earlier launch, is so
	// many entries before its own in drawn. 0: the row has no sample before it.
	int back, draft;
};
struct Bias {
	int token;
	float bias;
};
struct Drawn {
	int status, token; // the sampled token; if NOT_FINITE, the first token with such a logit
	float logit;       // of the token, before biases and penalties
};

// Best is a token and its score. Among equal scores the lowest token is best.
struct Best {
	float score;
	int token;
};
__device__ __forceinline__ Best better(Best a, Best b) {
	bool second = b.score > a.score || (b.score == a.score && (u32)b.token < (u32)a.token);
	return Best{second ? b.score : a.score, second ? b.token : a.token};
}

__device__ __forceinline__ Best warp_best(Best b) {
#pragma unroll
	for (int d = 16; d; d >>= 1) b = better(b, Best{__shfl_xor_sync(FULL, b.score, d), __shfl_xor_sync(FULL, b.token, d)});
	return b;
}

// block_best returns the best over all threads of the block, in each of them. Token -1 means none.
__device__ __forceinline__ Best block_best(Best b) {
	__shared__ Best part[WARPS];
	b = warp_best(b);
	__syncthreads();
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = b;
	__syncthreads();
	return warp_best(part[threadIdx.x % 32 % (blockDim.x / 32)]);
}

__device__ __forceinline__ u64 warp_total(u64 x) {
#pragma unroll
	for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(FULL, x, d);
	return x;
}

__device__ __forceinline__ float clamp_top(float x) { return x > MAX_F32 ? MAX_F32 : x; }

// key maps finite values to integers of the same order; -0 and +0 have the same key.
__device__ __forceinline__ u32 key(float x) {
	u32 u = __float_as_uint(__fadd_rn(x, 0.0f));
	return u >> 31 ? ~u : u | 0x80000000u;
}

// score returns the value with that key.
__device__ __forceinline__ float score(u32 k) { return __uint_as_float(k >> 31 ? k & 0x7fffffff : ~k); }

// weight returns exp(d) in units of 2^-40, the weight in top-p of a score that differs from the best by d <= 0.
__device__ __forceinline__ u64 weight(float d) { return d < -28.5f ? 0 : __float2ull_rn(__fmul_rn(exp32(d), 1099511627776.0f)); }

// Scratch is the shared memory of cut. A bin's weight is its first part, plus 2^14 times the second, plus 2^28 times the
// third: a part of up to 2^18 weights fits 32 bits, whose atomic additions are one instruction, unlike those of 64 bits.
struct Scratch {
	u32 bins[3][BINS];
	u64 warps[WARPS];
	u64 over, mass; // weight of all bins before bin, and of bin
	u32 bin;
	u32 list[LISTED], count; // keys of the candidates in the bin of the first pass, if they are not too many
};

__device__ __forceinline__ void add(Scratch &s, u32 bin, u64 w, bool by_weight) {
	if (!by_weight) {
		atomicAdd(&s.bins[0][bin], (u32)w);
		return;
	}
	atomicAdd(&s.bins[0][bin], (u32)w & 0x3fff);
	atomicAdd(&s.bins[1][bin], (u32)(w >> 14) & 0x3fff);
	atomicAdd(&s.bins[2][bin], (u32)(w >> 28));
}

// find sets bin, over and mass of s for the first bin at which the sum over all bins so far, plus over, reaches target. If
// target is 0, find first sets it to the share top_p of the sum over all bins.
__device__ __forceinline__ void find(Scratch &s, u64 over, u64 &target, float top_p, bool by_weight) {
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, per = BINS / blockDim.x, first = threadIdx.x * per;
	auto mass = [&](int b) { return s.bins[0][b] + (by_weight ? ((u64)s.bins[1][b] << 14) + ((u64)s.bins[2][b] << 28) : 0); };
	__syncthreads();
	u64 sum = 0, before = over; // before the thread's bins
#pragma unroll 1
	for (int b = first; b < first + per; b++) sum += mass(b);
#pragma unroll
	for (int d = 1; d < 32; d <<= 1) {
		u64 x = __shfl_xor_sync(FULL, sum, d); // of the other d lanes
		if (lane & d) before += x;
		sum += x;
	}
	if (lane == 0) s.warps[warp] = sum;
	__syncthreads();
	u64 other = lane < blockDim.x / 32 ? s.warps[lane] : 0;
	if (target == 0) {
		target = __double2ull_ru(__dmul_rn((double)top_p, __ull2double_rn(warp_total(other))));
		if (target == 0) target = 1;
	}
	before += warp_total(lane < warp ? other : 0);
#pragma unroll 1
	for (int b = first; b < first + per; b++) {
		u64 m = mass(b);
		if (before < target && before + m >= target) {
			s.bin = b;
			s.over = before;
			s.mass = m;
		}
		before += m;
	}
	__syncthreads();
}

// place returns the bin of a score by its distance from the best one: bins of equal width up to a distance of 28.5, where
// weights end, and one for all others. It never decreases as scores decrease, because rounding keeps order.
__device__ __forceinline__ u32 place(float z, float best) {
	return (u32)__float2int_rz(fminf(__fmul_rn(__fsub_rn(best, z), (BINS - 1) / 28.5f), (float)(BINS - 1)));
}

// cut keeps the best candidates of work until there are as many as target says, or if target is 0 until their weights reach
// the share top_p of all weights. It sets the others to -inf. Candidates are ordered by score, then by token. A first pass
// finds the bin in which the lowest score lies that is kept; three passes over the keys of that bin, of 11, 11 and 10 bits,
// find the score. The second pass lists the keys for the last two. Candidates with equal scores have equal weights.
__device__ __forceinline__ void cut(Scratch &s, float *work, int vocab, u64 target, float top_p, float best) {
	const bool by_weight = target == 0;
	u32 chosen = 0, prefix = 0; // prefix has the leading bits of the complement of the score's key
	u64 over = 0;
	if (threadIdx.x == 0) s.count = 0;
	__syncthreads();
#pragma unroll 1
	for (int pass = 0; pass < 4; pass++) {
		const int shift = pass == 1 ? 21 : pass == 2 ? 10 : 0, above = pass == 1 ? 32 : pass == 2 ? 21 : 10;
		for (int b = threadIdx.x; b < (by_weight ? 3 : 1) * BINS; b += blockDim.x) s.bins[0][b] = 0;
		const bool listed = pass > 1 && s.count <= LISTED; // the same for all threads
		const int n = listed ? s.count : vocab;
		__syncthreads();
		u32 far = 0;
		for (int t = threadIdx.x; t < n; t += blockDim.x) {
			float z = listed ? score(s.list[t]) : work[t];
			if (z == NEG_INF) continue;
			u32 bin = place(z, best);
			if (pass > 0) {
				if (bin != chosen) continue;
				u32 k = ~key(z);
				if (pass > 1 && (k ^ prefix) >> above) continue;
				if (pass == 1) {
					u32 at = atomicAdd(&s.count, 1u);
					if (at < LISTED) s.list[at] = ~k;
				}
				bin = k >> shift & ((1u << (above - shift)) - 1);
			} else if (bin == BINS - 1 && !by_weight) {
				far++;
				continue;
			}
			u64 w = by_weight ? weight(__fsub_rn(z, best)) : 1;
			if (w) add(s, bin, w, by_weight);
		}
		if (far) atomicAdd(&s.bins[0][BINS - 1], far);
		find(s, over, target, top_p, by_weight);
		over = s.over;
		if (pass == 0) chosen = s.bin;
		else prefix |= s.bin << shift;
	}
	// Among candidates with the lowest kept score, keep as many as target needs, lowest tokens first.
	u32 lowest = ~prefix;
	u64 each = by_weight ? weight(__fsub_rn(score(lowest), best)) : 1;
	u64 wanted = (target - over + each - 1) / each;
	bool all = wanted * each >= s.mass;
	int kept = 0, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	for (int base = 0; base < vocab; base += blockDim.x) {
		int t = base + threadIdx.x;
		float z = t < vocab ? work[t] : NEG_INF;
		u32 k = key(z);
		bool drop = k < lowest;
		if (!all) { // the same for all threads
			bool tie = z != NEG_INF && k == lowest;
			u32 ties = __ballot_sync(FULL, tie);
			__syncthreads();
			if (lane == 0) s.warps[warp] = __popc(ties);
			__syncthreads();
			u64 other = lane < blockDim.x / 32 ? s.warps[lane] : 0;
			u64 before = kept + warp_total(lane < warp ? other : 0) + __popc(ties & ((1u << lane) - 1));
			drop |= tie && before >= wanted;
			kept += (int)warp_total(other);
		}
		if (drop && z != NEG_INF) work[t] = NEG_INF;
	}
	__syncthreads();
}

// mix is the finalizer of SplitMix64.
__device__ __forceinline__ u64 mix(u64 z) {
	z ^= z >> 30;
	z *= 0xbf58476d1ce4e5b9ull;
	z ^= z >> 27;
	z *= 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

// change applies biases, penalties and mask to work, which has the logits. A barrier must stand before it.
__device__ __forceinline__ void change(float *work, const Row &r, const Bias *biases, const u64 *masks, const u32 *counts, int vocab) {
	for (int i = threadIdx.x; i < r.bias_count; i += blockDim.x) {
		Bias b = biases[r.bias_first + i];
		work[b.token] = clamp_top(__fadd_rn(work[b.token], b.bias));
	}
	__syncthreads();
	bool repeat = r.repetition != 0 && r.repetition != 1;
	const u64 *mask = r.mask < 0 ? 0 : masks + (size_t)r.mask * ((vocab + 63) / 64);
	if (!mask && !(r.flags & PENALISED)) return;
	for (int t = threadIdx.x; t < vocab; t += blockDim.x) {
		float l = work[t];
		u32 c = r.flags & PENALISED ? counts[(size_t)r.slot * vocab + t] : 0;
		if (c && l != NEG_INF) {
			if (repeat) l = l > 0 ? __fdiv_rn(l, r.repetition) : __fmul_rn(l, r.repetition);
			if (c & 0x7fffffff) {
				l = __fsub_rn(l, r.presence);
				l = __fsub_rn(l, __fmul_rn(r.frequency, (float)(c & 0x7fffffff)));
			}
			l = fmaxf(clamp_top(l), -MAX_F32);
		}
		if (mask && !(mask[t / 64] >> t % 64 & 1)) l = NEG_INF;
		work[t] = l;
	}
}

// draw samples a token from work. top is the best token and its logit.
__device__ __forceinline__ int draw(Scratch &s, float *work, const Row &r, Best top, int vocab) {
	float most = __fdiv_rn(top.score, r.temperature);
	if (most == POS_INF || most == NEG_INF) return top.token;
	float best = fmaxf(clamp_top(most), -MAX_F32);
	int candidates = 0;
	for (int t = threadIdx.x; t < vocab; t += blockDim.x) {
		float z = work[t];
		if (z == NEG_INF) continue;
		z = fmaxf(clamp_top(__fdiv_rn(z, r.temperature)), -MAX_F32);
		if (r.min_p > 0 && !(exp32(__fsub_rn(z, best)) >= r.min_p)) z = NEG_INF;
		candidates += z != NEG_INF;
		work[t] = z;
	}
	if (r.top_k > 0) {
		u64 n = warp_total(candidates);
		if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = n;
		__syncthreads();
		if ((u64)r.top_k < warp_total(threadIdx.x % 32 < blockDim.x / 32 ? s.warps[threadIdx.x % 32] : 0)) cut(s, work, vocab, r.top_k, 0, best);
	}
	if (r.top_p > 0 && r.top_p < 1) cut(s, work, vocab, 0, r.top_p, best);
	const u64 golden = 0x9e3779b97f4a7c15ull;
	u64 counter = mix(mix(r.seed + golden) ^ (u64)(u32)r.index * golden);
	Best drawn = {NEG_INF, -1};
	for (int t = threadIdx.x; t < vocab; t += blockDim.x) {
		if (work[t] == NEG_INF) continue;
		u64 h = mix(counter ^ (u64)(t + 1) * golden);
		float u = __fmul_rn(__fadd_rn((float)(u32)(h >> 41), 0.5f), 1.1920928955078125e-7f);
		drawn = better(drawn, Best{__fsub_rn(work[t], log32(-log32(u))), t});
	}
	return block_best(drawn).token;
}

// sample draws a token for each row with DRAW, and updates last and counts. For other rows it only checks that the
// logits are finite. A row after a draft that is not confirmed changes nothing. work is scratch, as large as logits.
// Grid: rows.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS, 1) sample(Drawn *drawn, float *work, const float *logits, const Row *rows, const Bias *biases, const u64 *masks,
                              const int *failed, int *last, u32 *counts, int vocab, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	Row r = rows[blockIdx.x];
	if (r.back) {
		Drawn before = drawn[(int)blockIdx.x - r.back];
		if (before.status != SAMPLED || before.token != r.draft) {
			if (threadIdx.x == 0) drawn[blockIdx.x] = Drawn{REFUSED, -1, 0};
			return;
		}
	}
	logits += (size_t)blockIdx.x * vocab;
	work += (size_t)blockIdx.x * vocab;
	Best bad = {NEG_INF, -1}; // the lowest token whose logit is NaN or infinite
	for (int t = threadIdx.x; t < vocab; t += blockDim.x) {
		float l = logits[t];
		work[t] = l;
		if (__fsub_rn(l, l) != 0) bad = better(bad, Best{0, t});
	}
	bad = block_best(bad);
	Drawn d = {SAMPLED, -1, 0};
	if (failed[r.batch_row]) {
		d.status = FAILED;
	} else if (bad.token >= 0) {
		d = Drawn{NOT_FINITE, bad.token, 0};
	} else if (r.flags & DRAW) {
		__shared__ Scratch scratch;
		change(work, r, biases, masks, counts, vocab);
		Best top = {NEG_INF, -1};
		for (int t = threadIdx.x; t < vocab; t += blockDim.x)
			if (work[t] != NEG_INF) top = better(top, Best{work[t], t});
		top = block_best(top);
		if (top.token < 0) {
			d.status = NO_TOKEN;
		} else {
			d.token = r.temperature == 0 ? top.token : draw(scratch, work, r, top, vocab);
			d.logit = logits[d.token];
		}
	}
	if (threadIdx.x != 0) return;
	drawn[blockIdx.x] = d;
	if (d.status != SAMPLED) last[r.slot] = -1;
	else if (r.flags & DRAW) last[r.slot] = d.token;
	if (d.token >= 0 && d.status == SAMPLED && r.flags & PENALISED) counts[(size_t)r.slot * vocab + d.token]++;
}

// normalize returns {max, log of the sum of exp(logit - max)}, from which a log-probability is computed. The sum has the
// CPU's order: 16 lanes by token, then a tree. Threads that see NaN or infinity set bad.
__device__ __forceinline__ float2 normalize(const float *logits, int vocab, u32 &bad) {
	__shared__ float terms[LOGPROB_THREADS];
	__shared__ float lanes[16];
	__shared__ float norm;
	Best top = {NEG_INF, -1};
	for (int t = threadIdx.x; t < vocab; t += LOGPROB_THREADS) {
		float l = logits[t];
		bad |= __fsub_rn(l, l) != 0 ? 1u : 0u;
		top = better(top, Best{l, t});
	}
	top = block_best(top);
	float sum = 0;
	for (int base = 0; base < vocab; base += LOGPROB_THREADS) {
		int t = base + threadIdx.x;
		__syncthreads();
		if (t < vocab) terms[threadIdx.x] = exp32(__fsub_rn(logits[t], top.score));
		__syncthreads();
		if (threadIdx.x < 16)
			for (int i = threadIdx.x; i < min(LOGPROB_THREADS, vocab - base); i += 16) sum = __fadd_rn(sum, terms[i]);
	}
	if (threadIdx.x < 16) lanes[threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.x == 0) {
#pragma unroll
		for (int d = 8; d; d >>= 1)
#pragma unroll
			for (int i = 0; i < d; i++) lanes[i] = __fadd_rn(lanes[i], lanes[i + d]);
		norm = log32(lanes[0]);
	}
	__syncthreads();
	return make_float2(top.score, norm);
}

// best writes the k best tokens to tops, in descending order.
__device__ __forceinline__ void best(Best *tops, const float *logits, int k, int vocab) {
	Best before = {POS_INF, -1};
	for (int i = 0; i < k; i++) {
		Best next = {NEG_INF, -1};
		for (int t = threadIdx.x; t < vocab; t += LOGPROB_THREADS) {
			float l = logits[t];
			if (l < before.score || (l == before.score && t > before.token)) next = better(next, Best{l, t});
		}
		before = block_best(next);
		if (threadIdx.x == 0) tops[i] = before;
	}
}

// logprobs writes normalize's result and the top_k best tokens of each row. Grid: rows.
KERNEL(LOGPROB_THREADS) logprobs(float2 *norms, Best *tops, const float *logits, const int *top_k, int top_stride, int vocab, const int *live) {
	if (blockIdx.x >= blocks_of(live)) return;
	u32 bad = 0;
	logits += (size_t)blockIdx.x * vocab;
	float2 norm = normalize(logits, vocab, bad);
	if (threadIdx.x == 0) norms[blockIdx.x] = norm;
	best(tops + (size_t)blockIdx.x * top_stride, logits, top_k[blockIdx.x], vocab);
}

// prompt_logprobs writes what logprobs writes, and the logit of the prompt's next token to picked. A target is {next
// token, its row of the batch, its slot}; a token below 0 is deferred: the last one sampled for the slot. A NaN or
// infinite logit fails the row. Grid: targets.
KERNEL(LOGPROB_THREADS) prompt_logprobs(float2 *norms, Best *tops, float *picked, int *failed, const float *logits, const int3 *targets,
                                       const int *last, int top, int vocab) {
	u32 bad = 0;
	int3 target = targets[blockIdx.x];
	logits += (size_t)blockIdx.x * vocab;
	float2 norm = normalize(logits, vocab, bad);
	if (bad) atomicOr(failed + target.y, 1);
	if (threadIdx.x == 0) {
		int token = target.x < 0 ? last[target.z] : target.x;
		norms[blockIdx.x] = norm;
		picked[blockIdx.x] = logits[token < 0 ? 0 : token]; // if the deferred sample failed, the row fails too
	}
	best(tops + (size_t)blockIdx.x * top, logits, top, vocab);
}
