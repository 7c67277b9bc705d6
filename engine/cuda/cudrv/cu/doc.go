// Package cu owns the cudrv driver that is linked against libcuda: it is
// gorgonia.org/cu, with what that lacks (pinned memory, attributes of functions,
// launches with a buffer of parameters, graphs) in lacks.go. It needs cgo,
// CUDA's headers and build tag cuda; without the tag it is empty.
//
// gorgonia.org/cu ends the process when it is initialised where cuInit fails. So
// nothing imports this package but behind the tag, and the default driver is
// cudrv/dlopen.
//
//	driver := cu.Driver{}
//	c, err := driver.Open(0)
package cu
