// Package gpucheck owns the checks and measurements of a GPU: the conformance suite of
// backends, kernels compared with the interpreter, bits that must not depend on the
// batch, ceilings, and tokens per second. Only wrong results fail; speed is reported
// with the device's measured ceilings, without a verdict. Run uses the calling goroutine.
//
//	report, err := gpucheck.Run(ctx, gpucheck.Config{Driver: driver})
//	fmt.Print(report)
package gpucheck
