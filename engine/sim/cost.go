package sim

import (
	"math"
	"time"

	"github.com/coppice-llm/coppice/engine"
)

// freeStep is the time of a step under the zero Profile. It is not zero, so that clocks
// advance.
const freeStep = time.Microsecond

// memShare is the part of a device's memory that weights and KV may fill; the
// rest is for activations. It is the default of vLLM's gpu_memory_utilization.
const memShare = 0.9

// tileRows is the number of a prompt's rows that share one read of their KV.
const tileRows = 128

// Step returns the device's time for b by a roofline: the layers and the head are
// bound by reading weights or by multiplying, a prompt's attention by multiplying
// or by reading KV once per 128 tokens, a decode row's by reading its KV. A row's drafts
// multiply in addition: in products as tokens and as samples, in attention with the KV
// that the row reads anyway. With n
// tokens, s samples, c cached tokens of a row, P linear parameters, a head of V·D (Vocab times Hidden)
// and b bytes per weight, kv bytes of KV per token, H heads of dimension HD and L layers; BW and F
// are the Device's BW and Flops, the other names those of Efficiency in JSON:
//
//	linear   max( (P + V·D·[s>0])·b / (e_w·BW), 2·(P·(n+n_half) + V·D·(s+n_half)·[s>0]) / (e_f·F) )
//	prompts  sum of max( 4·H·HD·L·(n·c + n(n+1)/2) / (e_a·F), kv·(c+n)·ceil(n/128) / (e_k·BW) )
//	decodes  sum of kv·(c+1) / (e_d·BW)
//	rest     t0 + r0·rows + 4·V·s / (e_s·BW) + 2·copied pages·pageBytes / BW
//
// The head counts as a separate product of s rows, so that an additional token never makes
// a step cheaper. pageBytes is the size of a page on the device. The result is the same on
// all machines: sums are over integers where possible, and the compiler may fuse no operations.
func (p *Profile) Step(b *engine.Batch, pageBytes int) time.Duration {
	if p.free() {
		return freeStep
	}
	return nanoseconds(p.seconds(b, pageBytes))
}

// seconds returns the duration that Step rounds, in seconds.
func (p *Profile) seconds(b *engine.Batch, pageBytes int) float64 {
	m, d, e := &p.Model, &p.Device, &p.Eff
	kvBytes := float64(p.KVTokenBytes())
	pairFlops := float64(4 * m.Heads * m.HeadDim * m.Layers)
	attend, tile := float64(e.Attend*d.Flops), float64(e.KVTile*d.BW)
	tokens, samples, decodeKV, prompts := 0, 0, int64(0), 0.0
	for i := range b.Rows {
		r := &b.Rows[i]
		n, c := int64(r.Own()), int64(r.Start)
		tokens += r.Len()
		if r.Sample {
			samples += 1 + len(r.Drafts)
		}
		if d := int64(len(r.Drafts)); d > 0 {
			prompts += float64(pairFlops*float64(d*(c+n)+d*(d+1)/2)) / attend
		}
		if n == 1 {
			decodeKV += c + 1
			continue
		}
		pairs, tiles := n*c+n*(n+1)/2, (n+tileRows-1)/tileRows
		prompts += max(float64(pairFlops*float64(pairs))/attend, float64(kvBytes*float64((c+n)*tiles))/tile)
	}
	seconds := e.Step + p.linear(tokens, samples) + prompts
	seconds += float64(kvBytes*float64(decodeKV)) / float64(e.KVRow*d.BW)
	seconds += float64(e.Row * float64(len(b.Rows)))
	seconds += float64(4*m.Vocab*samples) / float64(e.Sample*d.BW)
	return seconds + float64(2*len(b.Copies)*pageBytes)/d.BW
}

// linear returns the seconds that the products with weights take in a step with this number of
// tokens and of samples.
func (p *Profile) linear(tokens, samples int) float64 {
	if tokens == 0 {
		return 0
	}
	m, d, e := &p.Model, &p.Device, &p.Eff
	params := float64(m.LinearParams)
	work := float64(params * (float64(tokens) + e.NHalf))
	if samples > 0 {
		head := float64(m.Vocab * m.Hidden)
		params += head
		work += float64(head * (float64(samples) + e.NHalf))
	}
	return max(float64(params*m.WeightBytes)/float64(e.Weights*d.BW), float64(2*work)/float64(e.Flops*d.Flops))
}

// Host returns the time that the host takes to plan and launch a step with this number of rows.
func (p *Profile) Host(rows int) time.Duration {
	return nanoseconds(p.Eff.Host0 + float64(p.Eff.Host1*float64(rows)))
}

// Transfer returns the time to move this number of bytes between host and device.
func (p *Profile) Transfer(bytes int) time.Duration {
	if p.free() {
		return freeStep
	}
	return nanoseconds(p.Device.PCIeLat + float64(bytes)/float64(p.Eff.PCIe*p.Device.PCIe))
}

// KVTokens returns the number of tokens whose KV fits into 90 % of the device's memory
// together with the weights; 0 for the zero Profile.
func (p *Profile) KVTokens() int {
	if p.free() {
		return 0
	}
	room := float64(memShare*float64(p.Device.Mem)) - float64(float64(p.Model.Params)*p.Model.WeightBytes)
	return max(0, int(room/float64(p.KVTokenBytes())))
}

// Cost returns an estimate of p for engine.Info; zero for the zero Profile. An engine.StepCost can
// only add terms. So Cost adds the time of reading weights to that of multiplying, where Step
// takes the longer of the two; a draft is a token and a sample more to multiply.
func (p *Profile) Cost() engine.StepCost {
	if p.free() {
		return engine.StepCost{}
	}
	m, d, e := &p.Model, &p.Device, &p.Eff
	head := float64(m.Vocab * m.Hidden)
	logits := float64(4*m.Vocab) / float64(e.Sample*d.BW)
	return engine.StepCost{
		Step:  e.Step + float64((float64(m.LinearParams)+head)*m.WeightBytes)/float64(e.Weights*d.BW),
		Row:   e.Row + logits,
		Token: float64(2*m.LinearParams) / float64(e.Flops*d.Flops),
		Pair: max(float64(4*m.Heads*m.HeadDim*m.Layers)/float64(e.Attend*d.Flops),
			float64(p.KVTokenBytes())/float64(float64(tileRows*e.KVTile)*d.BW)),
		Context: float64(p.KVTokenBytes()) / float64(e.KVRow*d.BW),
		Draft:   float64(2*(float64(m.LinearParams)+head))/float64(e.Flops*d.Flops) + logits,
		Host:    e.Host0,
	}
}

// KVTokenBytes returns the bytes of one token's KV over all layers, on the device; 0 for the
// zero Profile.
func (p *Profile) KVTokenBytes() int {
	m := &p.Model
	return 2 * m.Layers * m.KVHeads * m.HeadDim * m.KVBytes
}

// nanoseconds rounds to whole nanoseconds. It limits the result to 2^62 ns, 146 years, so that the
// sum of two results does not overflow.
func nanoseconds(seconds float64) time.Duration {
	return duration(float64(seconds * 1e9))
}

func duration(ns float64) time.Duration { return time.Duration(min(math.Round(ns), 1<<62)) }
