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

// tileRows is how many rows of a prompt share one reading of their KV.
const tileRows = 128

// Step is the device's time for b by a roofline: the layers and the head are
// bound by reading weights or by multiplying, a prompt's attention by multiplying
// or by reading KV once per 128 tokens, a decode row's by reading its KV. With n
// tokens, s samples, c cached tokens of a row, P linear parameters, a head of V·D
// and b bytes per weight:
//
//	linear   max( (P + V·D·[s>0])·b / (e_w·BW), 2·(P·(n+n_half) + V·D·(s+n_half)·[s>0]) / (e_f·F) )
//	prompts  sum of max( 4·H·HD·L·(n·c + n(n+1)/2) / (e_a·F), kv·(c+n)·ceil(n/128) / (e_k·BW) )
//	decodes  sum of kv·(c+1) / (e_d·BW)
//	rest     t0 + r0·rows + 4·V·s / (e_s·BW) + 2·copied pages·pageBytes / BW
//
// The head counts as a product of s rows of its own, so that no token more makes
// a step cheaper. pageBytes is the size of a page on the device. The result is the
// same on all targets: sums are of integers where they can be, nothing is fused.
func (p *Profile) Step(b *engine.Batch, pageBytes int) time.Duration {
	if p.free() {
		return freeStep
	}
	return nanoseconds(p.seconds(b, pageBytes))
}

// seconds is Step before it is rounded.
func (p *Profile) seconds(b *engine.Batch, pageBytes int) float64 {
	m, d, e := &p.Model, &p.Device, &p.Eff
	kvBytes := float64(p.KVTokenBytes())
	pairFlops := float64(4 * m.Heads * m.HeadDim * m.Layers)
	attend, tile := float64(e.Attend*d.Flops), float64(e.KVTile*d.BW)
	tokens, samples, decodeKV, prompts := 0, 0, int64(0), 0.0
	for i := range b.Rows {
		r := &b.Rows[i]
		n, c := int64(r.Len()), int64(r.Start)
		tokens += int(n)
		if r.Sample {
			samples++
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

// linear is the time of the products with weights, in seconds.
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

// Host is the time to plan and launch a step of that many rows.
func (p *Profile) Host(rows int) time.Duration {
	return nanoseconds(p.Eff.Host0 + float64(p.Eff.Host1*float64(rows)))
}

// Transfer is the time to move bytes between host and device.
func (p *Profile) Transfer(bytes int) time.Duration {
	if p.free() {
		return freeStep
	}
	return nanoseconds(p.Device.PCIeLat + float64(bytes)/float64(p.Eff.PCIe*p.Device.PCIe))
}

// KVTokens is how many tokens of KV fit beside the weights in 90 % of the
// device's memory; 0 under the zero Profile.
func (p *Profile) KVTokens() int {
	if p.free() {
		return 0
	}
	room := float64(memShare*float64(p.Device.Mem)) - float64(float64(p.Model.Params)*p.Model.WeightBytes)
	return max(0, int(room/float64(p.KVTokenBytes())))
}

// Cost is p as engine.Info has it, without what can't be said by sums: reading the weights
// and multiplying count both. It is zero under the zero Profile.
func (p *Profile) Cost() engine.StepCost {
	if p.free() {
		return engine.StepCost{}
	}
	m, d, e := &p.Model, &p.Device, &p.Eff
	head := float64(m.Vocab * m.Hidden)
	return engine.StepCost{
		Step:  e.Step + float64((float64(m.LinearParams)+head)*m.WeightBytes)/float64(e.Weights*d.BW),
		Row:   e.Row + float64(4*m.Vocab)/float64(e.Sample*d.BW),
		Token: float64(2*m.LinearParams) / float64(e.Flops*d.Flops),
		Pair: max(float64(4*m.Heads*m.HeadDim*m.Layers)/float64(e.Attend*d.Flops),
			float64(p.KVTokenBytes())/float64(float64(tileRows*e.KVTile)*d.BW)),
		Context: float64(p.KVTokenBytes()) / float64(e.KVRow*d.BW),
		Host:    e.Host0,
	}
}

// BalanceTokens is the context at which attention costs a token of a long prompt
// as much as all else; 0 under the zero Profile.
func (p *Profile) BalanceTokens() int {
	c := p.Cost()
	return c.BalanceTokens()
}

// KVTokenBytes is the KV of one token over all layers, on the device; 0 under the zero Profile.
func (p *Profile) KVTokenBytes() int {
	m := &p.Model
	return 2 * m.Layers * m.KVHeads * m.HeadDim * m.KVBytes
}

// nanoseconds rounds to the clock's unit, and keeps what no clock can hold at 146
// years, so that sums of two do not overflow.
func nanoseconds(seconds float64) time.Duration {
	return duration(float64(seconds * 1e9))
}

func duration(ns float64) time.Duration { return time.Duration(min(math.Round(ns), 1<<62)) }
