// Package cudrvtest owns the conformance suite of cudrv drivers. It checks the properties
// that the CUDA backend relies on, with kernels of the backend. Every driver passes the
// same suite, on a device or without one.
//
//	cudrvtest.Run(t, driver)
package cudrvtest
