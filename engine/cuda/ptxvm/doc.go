// Package ptxvm executes PTX, the assembly that CUDA kernels are shipped as, on
// the host: so the code that a GPU would run is executed by tests on machines
// without one. It owns an imaginary device: memory, streams, events and kernels.
// It never talks to a real one, and it is not made to be fast for users.
//
// A kernel runs block after block, warp after warp, each instruction for all
// lanes of a warp that are at it. Integers, f32 and bf16 are rounded as IEEE 754
// and the PTX ISA 9.0 have them. The sum of mma is rounded another way than a
// chain of fused multiply-adds on purpose, since tensor cores do so too: two
// kernels that must agree to the bit have to sum the same way.
//
// Only what the kernels of engine/cuda use is there; Load names an instruction
// that is not. What a GPU would let pass is a [Fault], with kernel, block,
// thread and line of the source: accesses out of bounds, misaligned, or of
// memory that nothing has written; races in shared memory, between blocks of a
// kernel and between streams; barriers that not all threads reach; copies that
// are read before they were waited for.
//
// Streams run as late as the program allows: work is done when the host waits
// for it, and no work that it does not wait for. So host memory that is changed
// too early, and a result that is read without waiting, are seen.
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
