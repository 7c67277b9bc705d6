// Package cu owns the cudrv driver that is linked against libcuda. It uses
// gorgonia.org/cu; lacks.go adds the calls that gorgonia.org/cu lacks (pinned memory,
// function attributes, launches with a parameter buffer, graphs). It needs cgo, CUDA's
// headers and build tag cuda; without the tag it is empty.
//
// The package init of gorgonia.org/cu ends the process if cuInit fails. So other packages
// import this one only with the tag, and the default driver is cudrv/internal/dlopen.
//
//	driver := cu.Driver{}
//	c, err := driver.Open(0)
package cu
