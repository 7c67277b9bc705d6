// Package ptxvm executes PTX, the assembly of CUDA kernels, on the host, so tests run a
// GPU's code on machines without one. It owns a simulated device: memory, streams, events
// and kernels. It never reaches a real device, and is too slow for users.
//
// A kernel runs block after block and warp after warp; an instruction runs for all lanes
// of a warp that have reached it. Integers, f32, f16 and bf16 follow IEEE 754 and the PTX
// ISA 9.0. The sum of mma is rounded differently from a chain of fused multiply-adds on
// purpose, because tensor cores do that too: kernels with equal bits must sum in the same
// way.
//
// It supports the instructions of engine/cuda's kernels; Load returns an error that names
// any other. Errors that a GPU may not notice are a [Fault] with kernel, block, thread
// and source line: accesses out of bounds, misaligned, or to memory never written; races
// in shared memory, in global memory within a block, between blocks of a kernel and
// between streams; barriers that some threads miss; asynchronous copies that are read before the wait for them.
//
// Streams run as late as the program allows: work runs when the host waits for it, and
// only that work. So tests see it if host memory is changed too early, or a result is
// read without waiting.
//
// A Machine belongs to one goroutine.
//
//	m := ptxvm.New(ptxvm.Config{})
//	module, err := m.Load("scale.ptx", text)
//	x, err := m.Alloc(4 * n)
//	s := m.NewStream()
//	m.CopyIn(s, x, bytes)
//	m.Launch(s, module.Kernel("scale"), ptxvm.Launch{Grid: ptxvm.Dim{X: 1}, Block: ptxvm.Dim{X: 256}, Args: args})
//	m.CopyOut(s, bytes, x)
//	err = m.SyncStream(s)
package ptxvm
