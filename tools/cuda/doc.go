// Command cuda compiles the kernels of engine/cuda/kernels: CUDA C++ to PTX, and PTX by ptxas to
// machine code for sm_90a. Both are checked in and embedded. ptxas also reports the registers of each
// kernel for sm_80, sm_90a and sm_100a; a kernel that spills registers is an error. The command owns
// lock.json next to the kernels: the hashes of sources and results, the compiler and its flags.
//
// The compiler is installed by pip from the wheels of the four packages in requirements.txt, whose
// hashes are pinned, into a directory outside of the repository: about 250 MB. A C++ compiler must
// be installed already.
//
//	go run . -tree DIR install    # once
//	go run . -tree DIR build      # after a change of a kernel
//	go run . -tree DIR check      # compile again and compare, as CI does
//
// It also writes a folder to carry to a machine with a GPU that has neither Go nor a C compiler: the
// program coppice, and gpucheck.sh, which runs coppice gpucheck and keeps the report.
//
//	go run . carry DIR
package main
