package cudamem

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/internal/mempool/hostmem"
)

// OpenStore opens a host tier whose bytes are pinned: the device copies them without a
// buffer between. c.Bytes says how many; c.Memory and c.Release are the store's. Close
// gives them back, before the context is closed.
func OpenStore(ctx cudrv.Context, c hostmem.Config) (*hostmem.Store, error) {
	if c.Memory != nil || c.Release != nil {
		return nil, errors.New("cudamem: the memory of a pinned store is its own")
	}
	if c.Bytes <= 0 || c.Bytes != int64(int(c.Bytes)) {
		return nil, fmt.Errorf("cudamem: a pinned store of %d bytes", c.Bytes)
	}
	bytes := int(c.Bytes)
	c.Bytes = 0
	err := bound(ctx, func() (err error) {
		c.Memory, err = ctx.HostAlloc(bytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cudamem: pinning %d bytes: %w", bytes, err)
	}
	c.Release = func(b []byte) error { return bound(ctx, func() error { return ctx.HostFree(b) }) }
	s, err := hostmem.Open(c)
	if err != nil {
		return nil, errors.Join(err, c.Release(c.Memory))
	}
	return s, nil
}

// bound calls do with the context current.
func bound(ctx cudrv.Context, do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := ctx.Bind(); err != nil {
		return err
	}
	return do()
}
