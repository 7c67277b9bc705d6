package sampling

import (
	"math"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/internal/splitmix"
	"github.com/coppice-llm/coppice/kv"
)

// weightOne is the fixed-point 1 of top-p weights. Sums of integers do not depend on their order,
// and the sum of fewer than 2^24 weights of at most 1 fits 64 bits.
const weightOne = 1 << 40

// weightless is an exponent at or below which e^x rounds to 0 in units of 1/weightOne: e^-28.5 is
// less than half a unit.
const weightless = -28.5

// random draws a token from the logits in s.work, with the parameters p. It divides the logits by
// the temperature, drops candidates by min-p, top-k and top-p, and takes the candidate with the
// largest z - ln(-ln u), where z is its quotient and u a random number in (0, 1). By the
// Gumbel-max theorem the result has the distribution of the softmax over the candidates. index is
// the token's in the output, which together with p.Seed and the token id determines u. If the best
// quotient overflows f32, random returns the best token, as at temperature 0. ok is false if no
// token is allowed.
func (s *Sampler) random(p *engine.SamplingParams, index int32) (token kv.Token, ok bool) {
	z := s.work
	top, most := 0, float32(math.Inf(-1)) // the best token and its logit
	s.ids = s.ids[:0]
	for t, l := range z {
		if math.IsInf(float64(l), -1) {
			continue
		}
		if l > most {
			top, most = t, l
		}
		z[t] = max(clamp(float32(l/p.Temperature)), -math.MaxFloat32)
		s.ids = append(s.ids, int32(t))
	}
	if len(s.ids) == 0 {
		return 0, false
	}
	if math.IsInf(float64(float32(most/p.Temperature)), 0) {
		return kv.Token(top), true
	}
	best := z[top]
	if p.MinP > 0 {
		kept := s.ids[:0]
		for _, t := range s.ids {
			if f32.Exp32(z[t]-best) >= p.MinP {
				kept = append(kept, t)
			}
		}
		s.ids = kept
	}
	if p.TopK > 0 && int(p.TopK) < len(s.ids) {
		s.weigh(func(int32) uint64 { return 1 })
		s.cut(uint64(p.TopK))
	}
	if p.TopP > 0 && p.TopP < 1 {
		s.weigh(func(t int32) uint64 {
			d := z[t] - best
			if d < weightless {
				return 0
			}
			return uint64(math.RoundToEven(float64(f32.Exp32(d)) * weightOne))
		})
		total := uint64(0)
		for _, w := range s.wgt {
			total += w
		}
		s.cut(max(1, uint64(math.Ceil(float64(float64(p.TopP)*float64(total))))))
	}
	return s.gumbel(p.Seed, index), true
}

// weigh sets s.wgt[i] to the weight of candidate s.ids[i], as the function of returns it.
func (s *Sampler) weigh(of func(t int32) uint64) {
	s.wgt = s.wgt[:0]
	for _, t := range s.ids {
		s.wgt = append(s.wgt, of(t))
	}
}

// cut keeps the best candidates until their weights reach target: the shortest prefix, in the
// order of descending score and ascending id, whose weights sum to target or more. A radix search
// over the bits of the scores finds the last kept score without sorting. It makes four passes of 8
// bits, each over the candidates that share the bits found so far.
func (s *Sampler) cut(target uint64) {
	var prefix uint32  // the found bits of the last kept score's key
	above := uint64(0) // weight of all scores above the prefix
	s.near = s.near[:0]
	for i, t := range s.ids {
		s.near = append(s.near, scored{key(s.work[t]), s.wgt[i]})
	}
	for shift := 24; shift >= 0; shift -= 8 {
		var sum [256]uint64
		for _, c := range s.near {
			sum[c.key>>shift&255] += c.weight
		}
		digit := uint32(255)
		for ; digit > 0 && above+sum[digit] < target; digit-- {
			above += sum[digit]
		}
		prefix |= digit << shift
		kept := s.near[:0]
		for _, c := range s.near {
			if c.key>>shift&255 == digit {
				kept = append(kept, c)
			}
		}
		s.near = kept
	}
	kept, n := s.ids[:0], 0
	for i, t := range s.ids {
		k, w := key(s.work[t]), s.wgt[i]
		if k < prefix || k == prefix && above >= target {
			continue
		}
		if k == prefix {
			above += w
		}
		kept = append(kept, t)
		n++
	}
	s.ids = kept[:n]
}

// scored is a candidate in cut: the key of its score, see key, and its weight.
type scored struct {
	key    uint32
	weight uint64
}

// key maps finite f32 values to unsigned integers of the same order; -0 and +0 get the same key.
func key(x float32) uint32 {
	u := math.Float32bits(x + 0)
	if u>>31 != 0 {
		return ^u
	}
	return u | 1<<31
}

// gumbel returns the candidate of s.ids with the largest perturbed score z - ln(-ln u), the lowest
// id on ties. seed is the slot's and index that of random. gumbel computes the two
// logarithms only where the score may be the largest. It skips a candidate whose z + maxGumbel is
// below the best score so far, and one whose u is below enough: with such a u, not even the
// largest z would reach the best score.
func (s *Sampler) gumbel(seed uint64, index int32) kv.Token {
	base := splitmix.Mix(splitmix.Mix(seed+splitmix.Golden) ^ uint64(uint32(index))*splitmix.Golden)
	top := s.work[s.ids[0]]
	for _, t := range s.ids {
		top = max(top, s.work[t])
	}
	best, score := s.ids[0], float32(math.Inf(-1))
	enough := float32(0)
	for _, t := range s.ids {
		z := s.work[t]
		if z+maxGumbel < score {
			continue
		}
		u := uniform(splitmix.Mix(base ^ uint64(t+1)*splitmix.Golden))
		if u < enough {
			continue
		}
		if v := z - f32.Log32(-f32.Log32(u)); v > score {
			best, score = t, v
			if max(top, -top, v, -v) < coarse {
				enough = float32(math.Exp(-math.Exp(float64(top)-float64(v)+slack))) - 0x1p-20
			}
		}
	}
	return kv.Token(best)
}

const (
	// maxGumbel is above -ln(-ln u) of the largest u, 1 - 2^-24: 16.636.
	maxGumbel = 16.7
	// slack is more than the rounding error of any score of a magnitude below coarse.
	slack  = 1e-2
	coarse = 1 << 14
)

// uniform maps the upper 23 bits of h to the middle of one of 2^23 equal cells of (0, 1).
func uniform(h uint64) float32 {
	return float32((float32(h>>41) + 0.5) * 0x1p-23)
}
