// Package dlopen owns the cudrv driver that opens libcuda at run time. It needs neither
// cgo, nor headers, nor a toolkit. If the library is missing, Open returns an error. It
// never starts a kernel by itself.
//
// purego calls dlopen of libc, so the program must be linked against libc. Therefore the
// driver is in builds with cgo (their host-name resolver links libc anyway) and in builds
// with the tag purego. In a static build (CGO_ENABLED=0), which also starts on systems
// without glibc, Open returns an error.
//
//	driver, err := dlopen.Open("")
//	c, err := driver.Open(0)
package dlopen
