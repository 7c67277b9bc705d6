package hashcopy

import (
	"unsafe"

	"github.com/coppice-llm/coppice/internal/isa"
)

//go:generate go -C ../../tools/avo run . -set hashcopy -isa avx2 -pkg hashcopy -out ../../internal/hashcopy/kernel_avx2_amd64.s -stubs ../../internal/hashcopy/kernel_avx2_amd64.go
//go:generate go -C ../../tools/avo run . -set hashcopy -isa avx512 -pkg hashcopy -out ../../internal/hashcopy/kernel_avx512_amd64.s -stubs ../../internal/hashcopy/kernel_avx512_amd64.go

// kernels lists all kernels, fastest first.
var kernels = []struct {
	level isa.Level // that the kernel needs
	copyHash
}{{isa.AVX512, copyHashAVX512}, {isa.AVX2, copyHashAVX2}}

// kernel is the fastest kernel that this machine can run; nil if it can run none.
var kernel = choose()

func choose() copyHash {
	for _, k := range kernels {
		if k.level.Runs() {
			return k.copyHash
		}
	}
	return nil
}

// aligned reports whether dst is aligned to 64 bytes, which the kernels' non-temporal stores need.
func aligned(dst []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%64 == 0 }
