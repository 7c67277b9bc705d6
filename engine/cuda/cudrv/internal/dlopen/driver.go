//go:build linux && (amd64 || arm64) && (cgo || purego)

package dlopen

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

// Driver is an open libcuda. It stays open until the process ends.
type Driver struct {
	symbols [len(names)]uintptr
}

// Open opens and initialises the library at path, libcuda.so.1 if path is empty. It fails with
// cudrv.ErrUnavailable if the library is missing or does not work, and with cudrv.ErrNoDevice if
// the driver finds no device.
func Open(path string) (cudrv.Driver, error) {
	if path == "" {
		path = "libcuda.so.1"
	}
	runtime.LockOSThread() // dlerror tells a thread only of its own errors
	defer runtime.UnlockOSThread()
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cudrv.ErrUnavailable, err)
	}
	d := &Driver{}
	for f, name := range names {
		if d.symbols[f], err = purego.Dlsym(library, name); err != nil {
			return nil, fmt.Errorf("%w: the driver is too old: %w", cudrv.ErrUnavailable, err)
		}
	}
	if err := d.call(cuInit, 0); err != nil {
		if !errors.Is(err, cudrv.ErrNoDevice) {
			err = fmt.Errorf("%w: %w", cudrv.ErrUnavailable, err)
		}
		return nil, err
	}
	return d, nil
}

// call makes a driver call. Pointers must be converted to uintptr in the argument list itself: that
// keeps the memory alive.
//
//go:uintptrescapes
func (d *Driver) call(f function, args ...uintptr) error {
	r, _, _ := purego.SyscallN(d.symbols[f], args...)
	if code := int32(r); code != 0 {
		return &cudrv.Error{Call: names[f], Code: int(code), Err: d.said(code)}
	}
	return nil
}

// said returns the driver's text for a code.
func (d *Driver) said(code int32) error {
	var text unsafe.Pointer
	r, _, _ := purego.SyscallN(d.symbols[cuGetErrorString], uintptr(code), uintptr(unsafe.Pointer(&text)))
	if int32(r) != 0 || text == nil {
		return errors.New("dlopen: the driver has no text for this code")
	}
	n := 0
	for *(*byte)(unsafe.Add(text, n)) != 0 {
		n++
	}
	return errors.New(string(unsafe.Slice((*byte)(text), n)))
}

// Name returns "libcuda".
func (d *Driver) Name() string { return "libcuda" }

// Version implements cudrv.Driver.
func (d *Driver) Version() (int, error) {
	var v int32
	err := d.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

// Devices implements cudrv.Driver.
func (d *Driver) Devices() (int, error) {
	var n int32
	err := d.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// device returns the driver's handle of device i.
func (d *Driver) device(i int) (uintptr, error) {
	var device int32
	err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&device)), uintptr(i))
	return uintptr(device), err
}

// Properties implements cudrv.Driver.
func (d *Driver) Properties(i int) (cudrv.Properties, error) {
	var p cudrv.Properties
	device, err := d.device(i)
	if err != nil {
		return p, err
	}
	name := make([]byte, 256)
	if err := d.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), device); err != nil {
		return p, err
	}
	text, _, _ := bytes.Cut(name, []byte{0})
	p.Name = string(text)
	var total uint64
	if err := d.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&total)), device); err != nil {
		return p, err
	}
	p.MemoryBytes = int(total)
	for _, a := range []struct {
		attribute uintptr
		to        *int
	}{{1, &p.MaxThreadsPerBlock}, {16, &p.Multiprocessors}, {75, &p.Major}, {76, &p.Minor}, {97, &p.SharedPerBlock},
		{13, &p.ClockKHz}, {36, &p.MemoryClockKHz}, {37, &p.BusBits}, {38, &p.L2Bytes}} {
		var v int32
		if err := d.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), a.attribute, device); err != nil {
			return p, err
		}
		*a.to = int(v)
	}
	return p, nil
}

// Open implements cudrv.Driver.
func (d *Driver) Open(i int) (cudrv.Context, error) {
	device, err := d.device(i)
	if err != nil {
		return nil, err
	}
	c := &context{Driver: d, device: device}
	if err := d.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c.handle)), device); err != nil {
		return nil, err
	}
	if err := c.Bind(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
