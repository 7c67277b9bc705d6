package gpucheck

import (
	"context"
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/engine/sim"
)

// fit measures steps of many shapes, if Config.Steps is set, and fits the profile of a simulated
// device to them.
func fit(ctx context.Context, cfg *Config, r *Report) error {
	if cfg.Steps == nil {
		return nil
	}
	b, err := openMeasured(cfg, r, random.Repeated(cfg.Model, 1))
	if err != nil {
		return err
	}
	samples, err := cfg.Steps(ctx, b)
	if err := errors.Join(err, b.Close()); err != nil {
		return err
	}
	base, err := r.base(cfg)
	if err != nil {
		return err
	}
	p, fit, err := sim.Fit(base, samples)
	if err != nil {
		return err
	}
	p.Source = fmt.Sprintf("coppice gpucheck on %s: %d steps fitted, error %.1f %%; %d held out, error %.1f %%. Memory's bandwidth and the rate of products are those measured; the host's terms are those of h100.",
		r.Device.Name, fit.Train, 100*fit.TrainMAPE, fit.HeldOut, 100*fit.HeldOutMAPE)
	r.Profile, r.Fit, r.Steps = &p, &fit, samples
	return nil
}

// base returns the profile h100 with the dimensions of the measured model and the ceilings of this
// device. Figures that were not measured keep their values.
func (r *Report) base(cfg *Config) (sim.Profile, error) {
	p, err := sim.ProfileByName("h100")
	if err != nil {
		return p, err
	}
	c, ceilings := cfg.Model, &r.Ceilings
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	linear := int64(c.Layers) * int64(c.Hidden) * int64(2*heads+2*kvHeads+3*c.FFN)
	p.Name = "measured"
	p.Model = sim.Model{
		Name: fmt.Sprintf("%d layers, %d wide", c.Layers, c.Hidden), Params: linear + 2*int64(c.Vocab)*int64(c.Hidden), LinearParams: linear, Layers: c.Layers, Hidden: c.Hidden,
		Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab, MaxPositions: c.MaxPositions, WeightBytes: 2, KVBytes: 2,
	}
	p.Device.Name, p.Device.Mem = r.Device.Name, int64(r.Device.MemoryBytes)
	for _, x := range []struct {
		to *float64
		is float64
	}{{&p.Device.BW, ceilings.CopyBytesPerSecond}, {&p.Device.Flops, ceilings.ProductFlopsPerSec}, {&p.Device.PCIe, min(ceilings.ToDevice, ceilings.ToHost)}} {
		if x.is > 0 {
			*x.to = x.is
		}
	}
	return p, nil
}
