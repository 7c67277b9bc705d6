// Package cudrv owns the interface between Coppice and a CUDA driver: the calls that
// the CUDA backend needs, and their errors. It never links or opens a driver itself;
// its subpackages do.
//
// Each method is one call of the driver API, or two that belong together. Work queued on
// a stream runs later; methods that wait say so. Host memory of copies comes from
// HostAlloc. The caller must neither change nor read it before the copy is done.
//
// A Context may be used from several goroutines. The driver keeps the current context per
// OS thread, so a goroutine first locks its thread and calls Bind.
//
//	n, err := driver.Devices()
//	c, err := driver.Open(0)
//	defer c.Close()
//	module, err := c.Load(kernels.PTX("pages"))
//	f, err := c.Function(module, "table_write")
//	err = c.Launch(f, cudrv.Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{256, 1, 1}, Stream: s, Args: cudrv.Args(table, entries, n, stride)})
package cudrv
