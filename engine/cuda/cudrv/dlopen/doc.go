// Package dlopen owns the cudrv driver that opens libcuda at run time: no cgo in
// this project, no headers, no toolkit. Where the library is missing, Open gives
// an error and nothing else happens. It never starts a kernel by itself.
//
// The program must be linked against libc, which purego calls dlopen of. So the
// driver is in builds with cgo, whose resolver of host names links libc anyway,
// and in those with the tag purego; a static build (CGO_ENABLED=0), which also
// starts where there is no glibc, has an Open that says so.
//
//	driver, err := dlopen.Open("")
//	c, err := driver.Open(0)
package dlopen
