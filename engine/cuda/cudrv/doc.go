// Package cudrv owns the seam between Coppice and a CUDA driver: the calls that
// the CUDA backend needs, as an interface, with their errors. It never links
// or opens a driver itself; packages below it do.
//
// Each method is one call of the driver API, or two where one makes no sense
// without the other. Work that is queued on a stream runs some time later;
// methods that wait say so. Host memory of copies comes from HostAlloc and must
// not change, or be read, before the stream has passed the copy.
//
// A Context may be used from several goroutines. The current context is a thing
// of OS threads: a goroutine locks its thread and calls Bind first.
//
//	n, err := driver.Devices()
//	c, err := driver.Open(0)
//	defer c.Close()
//	module, err := c.Load(kernels.PTX("pages"))
//	f, err := c.Function(module, "table_write")
//	err = c.Launch(f, cudrv.Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{256, 1, 1}, Stream: s, Args: cudrv.Args(table, entries, n, stride)})
package cudrv
