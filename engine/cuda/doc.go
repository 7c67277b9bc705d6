// Package cuda owns the backend that computes on a CUDA device: the weights and
// the pool of pages in its memory, page tables and sampling state by slot, and
// the order in which kernels are launched. It reaches the device through a
// cudrv.Driver and never opens one itself; with cudrv/vm the same kernels run in
// an interpreter, slowly and with every access checked.
//
// The logits after a token prefix are the same bits for every batch, chunking,
// page placement and cache state: the kernels share one order of summation, a
// function of shapes and absolute positions (engine/cuda/kernels).
//
// Four goroutines serve a Backend. One plans and launches. The others wait for events and complete
// tickets: one for steps, and one for page moves in each direction, which have separate streams.
// Nothing else waits for the device.
//
//	b, err := cuda.Open(model, cuda.Config{Driver: driver, Pages: 4096})
//	defer b.Close()
//	t, err := b.Submit(&engine.Batch{Seq: 1, Rows: rows})
package cuda
