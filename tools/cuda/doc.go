// Command cuda compiles the kernels of engine/cuda/kernels: CUDA C++ to PTX,
// and PTX by ptxas to machine code for sm_90a; both are checked in and embedded.
// ptxas also says for sm_80, sm_90a and sm_100a how many registers each kernel
// takes; one that spills some fails. The command owns lock.json beside the kernels:
// hashes of sources and of what was made of them, the compiler and its flags.
//
// The compiler comes as wheels of the four packages in requirements.txt, with
// their hashes, by pip, into a directory outside of the repository: about
// 250 MB. A C++ compiler must be there already.
//
//	go run . -tree DIR install    # once
//	go run . -tree DIR build      # after a change of a kernel
//	go run . -tree DIR check      # compile again and compare, as CI does
package main
