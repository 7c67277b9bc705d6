package cuda

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
)

// Reasons why a device can't be used, besides cudrv.ErrNoDevice.
var (
	ErrOld    = errors.New("cuda: too old")
	ErrMemory = errors.New("cuda: too little memory")
)

// Requirements of the kernels' PTX.
const (
	minCUDA   = 13000 // PTX 9.0
	minDriver = 580   // NVIDIA's number of the first driver for it
	minMajor  = 8     // bf16 on tensor cores, cp.async
)

// Usable returns an error if device i of driver d can't run the kernels for heads of headDim: ErrOld,
// cudrv.ErrNoDevice or the driver's own.
func Usable(d cudrv.Driver, i, headDim int) error {
	version, err := d.Version()
	if err != nil {
		return err
	}
	if version < minCUDA {
		return fmt.Errorf("%w: the driver supports CUDA %d.%d, the kernels need %d.%d, NVIDIA's driver %d",
			ErrOld, version/1000, version%1000/10, minCUDA/1000, minCUDA%1000/10, minDriver)
	}
	n, err := d.Devices()
	if err != nil {
		return err
	}
	if i < 0 || i >= n {
		return fmt.Errorf("%w: GPU %d, the driver has %d, counted from 0", cudrv.ErrNoDevice, i, n)
	}
	p, err := d.Properties(i)
	if err != nil {
		return err
	}
	if p.Major < minMajor {
		return fmt.Errorf("%w: GPU %d (%s) has compute capability %d.%d, the kernels need %d.0", ErrOld, i, p.Name, p.Major, p.Minor, minMajor)
	}
	if need := kernels.TileBytes(headDim); p.SharedPerBlock < need {
		return fmt.Errorf("%w: GPU %d (%s) has %d bytes of shared memory for a block, attention needs %d", ErrOld, i, p.Name, p.SharedPerBlock, need)
	}
	return nil
}

// budget checks that weights of weightBytes, the buffers and the pool fit into memory. It sets the
// size of the pool if the configuration leaves it open. The error wraps ErrMemory.
func (d *device) budget(weightBytes int) error {
	free, total, err := d.ctx.MemInfo()
	if err != nil {
		return err
	}
	bufferBytes := 0
	for _, b := range d.buffers() {
		bufferBytes += (b.n + allocUnit - 1) / allocUnit * allocUnit
	}
	page := 2 * d.pageElements
	left := free - int(float64(total)*(1-d.cfg.MemoryFraction)) - weightBytes - bufferBytes
	pages := d.cfg.Pages
	if pages == 0 {
		pages = min(max(left/page, 0), maxPages)
	}
	if pages == 0 || pages*page > left {
		return fmt.Errorf("%w: GPU %d has %s free of %s, of which %.0f%% may be used; weights take %s, buffers %s, the pool %s",
			ErrMemory, d.cfg.Device, size(free), size(total), 100*d.cfg.MemoryFraction, size(weightBytes), size(bufferBytes), size(max(pages, 1)*page))
	}
	d.cfg.Pages = pages
	return nil
}

// size formats a number of bytes with a unit.
func size(n int) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
