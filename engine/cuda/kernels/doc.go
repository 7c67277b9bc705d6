// Package kernels owns the CUDA kernels: their sources, the embedded PTX that is compiled
// from them, and lock.json with the hashes of both. It never launches them.
//
// tools/cuda compiles the sources, see docs/gpu.md. This package needs neither a compiler
// nor a GPU.
//
//	for _, name := range kernels.Names() {
//		module, err := driver.LoadModule(kernels.PTX(name))
//	}
package kernels
