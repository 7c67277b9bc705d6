// Package gpucheck owns the proof that a GPU computes what it should, and the
// figures of how fast: the conformance suite of backends, kernels against the
// interpreter, bits that must not depend on the batch, ceilings, tokens a second.
// It judges nothing but right or wrong; speed is reported beside what the device
// was seen to reach. Run uses the calling goroutine.
//
//	report, err := gpucheck.Run(ctx, gpucheck.Config{Driver: driver})
//	fmt.Print(report)
package gpucheck
