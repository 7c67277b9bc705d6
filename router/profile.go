package router

import "github.com/coppice-llm/coppice/internal/bounds"

// Profile has the coefficients of a worker's step time, in seconds, for [CostLatency]:
//
//	step = Step + Token·t + Pair·p + Row·r + KV·c + Block·b + Prompt (if t > 0)
//
// for t prompt tokens with p pairs (each token with each token before it), r decoding
// rows, c tokens of KV that these read, and b distinct blocks. Measure steps to get
// them, or take differences of a simulated device's steps. The zero Profile is
// [DefaultProfile].
type Profile struct {
	Step      float64 `min:"0" max:"1000"` // per step: reading the weights, launching kernels
	Token     float64 `min:"0" max:"1000"` // per prompt token
	Pair      float64 `min:"0" max:"1000"` // per prompt token and token before it
	Row       float64 `min:"0" max:"1000"` // per decoding row
	KV        float64 `min:"0" max:"1000"` // per token of KV that a decoding row reads
	HostBlock float64 `min:"0" max:"1000"` // per block fetched from host memory
	DiskBlock float64 `min:"0" max:"1000"` // per block fetched from disk or from lower tiers

	// Block is per distinct block of decoding rows. It replaces KV on devices where
	// rows that share a block read it once (cascade attention).
	Block float64 `min:"0" max:"1000"`
	// Prompt is per step with any prompt tokens.
	Prompt float64 `min:"0" max:"1000"`
}

// DefaultProfile is a model of 8 billion parameters in bf16 on an H100, from data
// sheets, as in engine/sim:
//
//	Step      15 GB of weights at 2.5 TB/s
//	KV        131 kB per token at 2.3 TB/s
//	Token     14 GFLOP at 640 TFLOP/s
//	Pair      0.5 MFLOP at 445 TFLOP/s
//	HostBlock 16 tokens (2 MB) at 50 GB/s
//	DiskBlock 2 MB at 5 GB/s
//
// The sum overestimates short prompts, because a device overlaps reading and computing.
// Another model or device needs another profile; choices differ little while a
// coefficient is wrong by a factor of two (fleet_test.go).
func DefaultProfile() Profile {
	return Profile{Step: 6.4e-3, Token: 2.2e-5, Pair: 1.2e-9, Row: 1.3e-6, KV: 5.6e-8, HostBlock: 4e-5, DiskBlock: 4e-4}
}

// Validate returns every coefficient that is not between 0 and 1000 seconds.
func (p Profile) Validate() error { return bounds.Check("router: Profile, in seconds", p) }

// prefill returns the time to compute n prompt tokens after c cached tokens, in seconds, without
// the fixed costs of steps. Computed token i (from 1) makes c+i pairs, one with each token up to
// itself, so the pairs are n·c + n(n+1)/2.
func (p *Profile) prefill(n, c float64) float64 {
	return p.Token*n + p.Pair*(n*c+n*(n+1)/2)
}

// decode returns the time of a step without prompt tokens, in seconds and without Block. rows is
// the number of decoding rows, contextTokens the tokens of KV that they read together.
func (p *Profile) decode(rows, contextTokens float64) float64 {
	return p.Step + p.Row*rows + p.KV*contextTokens
}
