//go:build cuda && linux

package cu

import (
	"errors"
	"reflect"
	"sync/atomic"

	"gorgonia.org/cu"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// Driver is the libcuda that the program is linked with. Package init initialises it.
type Driver struct{}

// check converts an error of gorgonia.org/cu to a cudrv.Error with call and code.
func check(call string, err error) error {
	if err == nil {
		return nil
	}
	code := cudrv.CodeUnknown
	if v := reflect.ValueOf(err); v.CanInt() { // gorgonia's error type is unexported
		code = int(v.Int())
	}
	return &cudrv.Error{Call: call, Code: code, Err: err}
}

// Name returns "gorgonia.org/cu".
func (Driver) Name() string { return "gorgonia.org/cu" }

// Version implements cudrv.Driver.
func (Driver) Version() (int, error) {
	v := cu.Version()
	if v < 0 {
		return 0, check("cuDriverGetVersion", errors.New("cu: the call failed"))
	}
	return v, nil
}

// Devices implements cudrv.Driver.
func (Driver) Devices() (int, error) {
	n, err := cu.NumDevices()
	return n, check("cuDeviceGetCount", err)
}

// Properties implements cudrv.Driver.
func (Driver) Properties(i int) (cudrv.Properties, error) {
	var p cudrv.Properties
	device, err := cu.GetDevice(i)
	if err != nil {
		return p, check("cuDeviceGet", err)
	}
	if p.Name, err = device.Name(); err != nil {
		return p, check("cuDeviceGetName", err)
	}
	total, err := device.TotalMem()
	if err != nil {
		return p, check("cuDeviceTotalMem", err)
	}
	p.MemoryBytes = int(total)
	for _, a := range []struct {
		attribute cu.DeviceAttribute
		to        *int
	}{{cu.MaxThreadsPerBlock, &p.MaxThreadsPerBlock}, {cu.MultiprocessorCount, &p.Multiprocessors}, {cu.ComputeCapabilityMajor, &p.Major},
		{cu.ComputeCapabilityMinor, &p.Minor}, {sharedPerBlockOptin, &p.SharedPerBlock},
		{cu.ClockRate, &p.ClockKHz}, {cu.MemoryClockRate, &p.MemoryClockKHz}, {cu.GlobalMemoryBusWidth, &p.BusBits}, {cu.L2CacheSize, &p.L2Bytes}} {
		if *a.to, err = device.Attribute(a.attribute); err != nil {
			return p, check("cuDeviceGetAttribute", err)
		}
	}
	return p, nil
}

// Open implements cudrv.Driver.
func (Driver) Open(i int) (cudrv.Context, error) {
	device, err := cu.GetDevice(i)
	if err != nil {
		return nil, check("cuDeviceGet", err)
	}
	primary, err := device.RetainPrimaryCtx()
	if err != nil {
		return nil, check("cuDevicePrimaryCtxRetain", err)
	}
	c := &context{device: device, primary: primary}
	if err := c.Bind(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// context is a device's primary context.
type context struct {
	device  cu.Device
	primary cu.CUContext
	closed  atomic.Bool
}

var _ cudrv.Context = (*context)(nil)

var (
	errSize   = errors.New("cu: no bytes")
	errClosed = errors.New("cu: the context is closed")
)

func invalid(call string, err error) error {
	return &cudrv.Error{Call: call, Code: cudrv.CodeInvalidValue, Err: err}
}

// Bind implements cudrv.Context.
func (c *context) Bind() error {
	if c.closed.Load() {
		return invalid("cuCtxSetCurrent", errClosed)
	}
	return check("cuCtxSetCurrent", cu.SetCurrentContext(c.primary))
}

// Close implements cudrv.Context.
func (c *context) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return check("cuDevicePrimaryCtxRelease", c.device.ReleasePrimaryCtx())
}
