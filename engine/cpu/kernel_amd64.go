package cpu

//go:generate go -C ../../tools/avo run . -isa avx2 -pkg cpu -out ../../engine/cpu/kernel_avx2_amd64.s -stubs ../../engine/cpu/kernel_avx2_amd64.go
//go:generate go -C ../../tools/avo run . -isa avx512 -pkg cpu -out ../../engine/cpu/kernel_avx512_amd64.s -stubs ../../engine/cpu/kernel_avx512_amd64.go

// kernelsOf is the path's table, nil for an unknown name; whether the machine can
// run it is not asked here.
func kernelsOf(isa ISA) *kernels {
	switch isa {
	case Portable:
		return &kernels{isa: Portable}
	case AVX2:
		quarters := []int{0, 8, 32, 40} // each is 8 columns and those 16 further on
		return &kernels{
			isa: AVX2,
			tiles: []tile{
				{rows: 6, columns: quarters, f32: gemm6x16f32AVX2, bf16: gemm6x16bf16AVX2},
				{rows: 4, columns: quarters, f32: gemm4x16f32AVX2, bf16: gemm4x16bf16AVX2},
				{rows: 2, columns: []int{0, 32}, f32: gemm2x32f32AVX2, bf16: gemm2x32bf16AVX2},
				{rows: 1, columns: []int{0}, f32: gemm1x64f32AVX2, bf16: gemm1x64bf16AVX2},
			},
			scores: scoresAVX2, softmax: softmaxAVX2, values: valuesAVX2,
			squares: squaresAVX2, scale: scaleAVX2, silu: siluAVX2, stream: streamAVX2,
		}
	case AVX512:
		whole := []int{0}
		return &kernels{
			isa: AVX512,
			tiles: []tile{
				{rows: 6, columns: whole, f32: gemm6x64f32AVX512, bf16: gemm6x64bf16AVX512},
				{rows: 4, columns: whole, f32: gemm4x64f32AVX512, bf16: gemm4x64bf16AVX512},
				{rows: 2, columns: whole, f32: gemm2x64f32AVX512, bf16: gemm2x64bf16AVX512},
				{rows: 1, columns: whole, f32: gemm1x64f32AVX512, bf16: gemm1x64bf16AVX512},
			},
			scores: scoresAVX512, softmax: softmaxAVX512, values: valuesAVX512,
			squares: squaresAVX512, scale: scaleAVX512, silu: siluAVX512, stream: streamAVX512,
		}
	}
	return nil
}
