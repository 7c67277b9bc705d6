package hashcopy

import (
	"unsafe"

	machine "golang.org/x/sys/cpu"
)

//go:generate go -C ../../tools/avo run . -set hashcopy -isa avx2 -pkg hashcopy -out ../../internal/hashcopy/kernel_avx2_amd64.s -stubs ../../internal/hashcopy/kernel_avx2_amd64.go
//go:generate go -C ../../tools/avo run . -set hashcopy -isa avx512 -pkg hashcopy -out ../../internal/hashcopy/kernel_avx512_amd64.s -stubs ../../internal/hashcopy/kernel_avx512_amd64.go

// kernel is the fastest kernel that this machine can run; nil if it can run none.
var kernel = choose()

func choose() copyHash {
	switch {
	case machine.X86.HasAVX512F:
		return copyHashAVX512
	case machine.X86.HasAVX2:
		return copyHashAVX2
	}
	return nil
}

// aligned reports whether dst is aligned to 64 bytes, which the kernels' non-temporal stores need.
func aligned(dst []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%64 == 0 }
