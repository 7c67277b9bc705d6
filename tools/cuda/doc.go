// Command cuda compiles the kernels of engine/cuda/kernels: CUDA C++ to PTX,
// which is checked in and embedded, and PTX by ptxas to machine code, to see
// that it is accepted and how many registers it takes. It owns lock.json beside the kernels:
// hashes of sources and of what was made of them, the compiler and its flags.
//
// The compiler comes as wheels of the four packages in requirements.txt, with
// their hashes, by pip, into a directory outside of the repository: about
// 250 MB. A C++ compiler must be there already.
//
//	go run . -tree DIR install    # once
//	go run . -tree DIR build      # after a change of a kernel
//	go run . -tree DIR check      # compile again and compare, as CI does
//	go run . -tree DIR cubin OUT  # machine code for sm_90a, into OUT
package main
