package router

import (
	"errors"
	"fmt"
)

// Profile are the coefficients of a worker's steps, for [CostLatency]: how long a
// step takes with so many prompt tokens and decoding rows. All in seconds. They
// come from measured steps, or from differences of the steps of a simulated
// device. The zero Profile is [DefaultProfile].
type Profile struct {
	Step      float64 // of a step by itself: reading the weights, launching
	Token     float64 // for each token of a prompt
	Pair      float64 // for each token of a prompt and each token before it
	Row       float64 // for each decoding row
	KV        float64 // for each token of KV that a decoding row reads
	HostBlock float64 // to bring a block in from the host
	DiskBlock float64 // to bring a block in from disk, or from what is below it

	// Block is for each distinct block that decoding rows hold, on devices where rows that
	// share a block read it once (cascade attention, say): in place of KV there.
	Block float64
	// Prompt is what a step with any tokens of prompts takes beside them.
	Prompt float64
}

// DefaultProfile is a model of 8 billion parameters in bf16 on an H100 by data
// sheet, as engine/sim has it: 15 GB of weights read at 2.5 TB/s and 131 kB of KV per
// token at 2.3, 14 GFLOP per token and 0.5 MFLOP per pair at 640 and 445 TFLOP/s.
// Blocks of 16 tokens (2 MB) come in at 50 GB/s from the host and 5 GB/s from disk.
// That a step costs the sum, where a device may do one thing beside the other, is too
// much for short prompts. Another model or device needs another profile, though
// choices differ little while a coefficient is off by two (fleet_test.go).
func DefaultProfile() Profile {
	return Profile{Step: 6.4e-3, Token: 2.2e-5, Pair: 1.2e-9, Row: 1.3e-6, KV: 5.6e-8, HostBlock: 4e-5, DiskBlock: 4e-4}
}

// Validate reports every coefficient that is not a number from 0 to 1000 seconds.
func (p Profile) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"Step", p.Step}, {"Token", p.Token}, {"Pair", p.Pair}, {"Row", p.Row}, {"KV", p.KV},
		{"HostBlock", p.HostBlock}, {"DiskBlock", p.DiskBlock}, {"Block", p.Block}, {"Prompt", p.Prompt},
	} {
		if !(f.value >= 0 && f.value <= 1000) {
			errs = append(errs, fmt.Errorf("router: Profile.%s is %v, want 0 to 1000 seconds", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// prefill is how long n tokens behind c cached ones take, in seconds, without what
// the steps cost by themselves.
func (p *Profile) prefill(n, c float64) float64 {
	return p.Token*n + p.Pair*(n*c+n*(n+1)/2)
}

// decode is how long a step takes with so many decoding rows that read so many
// tokens of KV together, in seconds, without what it takes for distinct blocks.
func (p *Profile) decode(rows, contextTokens float64) float64 {
	return p.Step + p.Row*rows + p.KV*contextTokens
}
