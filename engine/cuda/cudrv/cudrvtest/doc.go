// Package cudrvtest owns the conformance suite of cudrv drivers: what the CUDA
// backend relies on, checked through the seam with the kernels that ship. Every
// driver passes the same suite, on a device or without one.
//
//	cudrvtest.Run(t, driver)
package cudrvtest
