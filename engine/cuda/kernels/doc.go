// Package kernels owns the CUDA kernels: their sources, the PTX that is made of
// them and embedded, and the lock that ties the two. It never launches them.
//
// The sources are compiled by tools/cuda; docs/gpu.md says how. Nothing here
// needs a compiler or a GPU.
//
//	for _, name := range kernels.Names() {
//		module, err := driver.LoadModule(kernels.PTX(name))
//	}
package kernels
