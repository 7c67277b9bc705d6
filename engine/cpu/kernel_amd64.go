package cpu

//go:generate go -C ../../tools/avo run . -isa avx2 -pkg cpu -out ../../engine/cpu/kernel_avx2_amd64.s -stubs ../../engine/cpu/kernel_avx2_amd64.go
//go:generate go -C ../../tools/avo run . -isa avxvnni -pkg cpu -out ../../engine/cpu/kernel_avxvnni_amd64.s -stubs ../../engine/cpu/kernel_avxvnni_amd64.go
//go:generate go -C ../../tools/avo run . -isa avx512 -pkg cpu -out ../../engine/cpu/kernel_avx512_amd64.s -stubs ../../engine/cpu/kernel_avx512_amd64.go
//go:generate go -C ../../tools/avo run . -isa avx512vnni -pkg cpu -out ../../engine/cpu/kernel_avx512vnni_amd64.s -stubs ../../engine/cpu/kernel_avx512vnni_amd64.go

// kernelsOf returns the kernels of a path, nil for an unknown name. It does not check that the
// machine can run the path.
func kernelsOf(isa ISA) *kernels {
	switch isa {
	case Portable:
		return &kernels{isa: Portable}
	case AVX2:
		return kernelsAVX2(isa, quantAVX2())
	case AVXVNNI:
		return kernelsAVX2(isa, quantAVXVNNI())
	case AVX512:
		return kernelsAVX512(isa, quantAVX2())
	case AVX512VNNI:
		return kernelsAVX512(isa, quantAVX512VNNI())
	}
	return nil
}

func kernelsAVX2(isa ISA, quant *quantKernels) *kernels {
	quarters := []int{0, 8, 32, 40} // a tile at c covers columns [c, c+8) and [c+16, c+24)
	return &kernels{
		isa: isa, quant: quant,
		tiles: []tile{
			{rows: 6, columns: quarters, f32: gemm6x16f32AVX2, bf16: gemm6x16bf16AVX2, f16: gemm6x16f16AVX2},
			{rows: 5, columns: quarters, f32: gemm5x16f32AVX2, bf16: gemm5x16bf16AVX2, f16: gemm5x16f16AVX2},
			{rows: 4, columns: quarters, f32: gemm4x16f32AVX2, bf16: gemm4x16bf16AVX2, f16: gemm4x16f16AVX2},
			{rows: 3, columns: []int{0, 32}, f32: gemm3x32f32AVX2, bf16: gemm3x32bf16AVX2, f16: gemm3x32f16AVX2},
			{rows: 2, columns: []int{0, 32}, f32: gemm2x32f32AVX2, bf16: gemm2x32bf16AVX2, f16: gemm2x32f16AVX2},
			{rows: 1, columns: []int{0}, f32: gemm1x64f32AVX2, bf16: gemm1x64bf16AVX2, f16: gemm1x64f16AVX2},
		},
		scores: scoresAVX2, softmax: softmaxAVX2, values: valuesAVX2,
		squares: squaresAVX2, scale: scaleAVX2, silu: siluAVX2, siluPairs: siluPairsAVX2, stream: streamAVX2,
		add: addAVX2, rotate: rotateAVX2, quantize: quantizeAVX2, fetch: fetchAVX2, narrowF16: narrowF16AVX2, widenF16: widenF16AVX2, widenBF16: widenBF16AVX2, widenQ8: widenQ8AVX2,
	}
}

func kernelsAVX512(isa ISA, quant *quantKernels) *kernels {
	whole := []int{0}
	return &kernels{
		isa: isa, quant: quant,
		tiles: []tile{
			{rows: 6, columns: whole, f32: gemm6x64f32AVX512, bf16: gemm6x64bf16AVX512, f16: gemm6x64f16AVX512},
			{rows: 5, columns: whole, f32: gemm5x64f32AVX512, bf16: gemm5x64bf16AVX512, f16: gemm5x64f16AVX512},
			{rows: 4, columns: whole, f32: gemm4x64f32AVX512, bf16: gemm4x64bf16AVX512, f16: gemm4x64f16AVX512},
			{rows: 3, columns: whole, f32: gemm3x64f32AVX512, bf16: gemm3x64bf16AVX512, f16: gemm3x64f16AVX512},
			{rows: 2, columns: whole, f32: gemm2x64f32AVX512, bf16: gemm2x64bf16AVX512, f16: gemm2x64f16AVX512},
			{rows: 1, columns: whole, f32: gemm1x64f32AVX512, bf16: gemm1x64bf16AVX512, f16: gemm1x64f16AVX512},
		},
		scores: scoresAVX512, softmax: softmaxAVX512, values: valuesAVX512,
		squares: squaresAVX512, scale: scaleAVX512, silu: siluAVX512, siluPairs: siluPairsAVX512, stream: streamAVX512,
		add: addAVX2, rotate: rotateAVX2, quantize: quantizeAVX2, fetch: fetchAVX2, narrowF16: narrowF16AVX2, widenF16: widenF16AVX512, widenBF16: widenBF16AVX512, widenQ8: widenQ8AVX512,
	}
}

func quantAVX2() *quantKernels {
	return &quantKernels{byKind: [len(quantKinds)]quantKernel{
		quantn4hAVX2, quantn4hmAVX2, quantn4kmAVX2, quantt4hAVX2, quantt4wAVX2, quantb8hAVX2, quantn5hAVX2, quantn5hmAVX2, quantn5kmAVX2, quantn6k2AVX2,
	}}
}

func quantAVXVNNI() *quantKernels {
	return &quantKernels{biased: true, byKind: [len(quantKinds)]quantKernel{
		quantn4hAVXVNNI, quantn4hmAVXVNNI, quantn4kmAVXVNNI, quantt4hAVXVNNI, quantt4wAVXVNNI, quantb8hAVXVNNI, quantn5hAVXVNNI, quantn5hmAVXVNNI, quantn5kmAVXVNNI, quantn6k2AVXVNNI,
	}}
}

func quantAVX512VNNI() *quantKernels {
	return &quantKernels{biased: true, byKind: [len(quantKinds)]quantKernel{
		quantn4hAVX512VNNI, quantn4hmAVX512VNNI, quantn4kmAVX512VNNI, quantt4hAVX512VNNI, quantt4wAVX512VNNI, quantb8hAVX512VNNI, quantn5hAVX512VNNI, quantn5hmAVX512VNNI, quantn5kmAVX512VNNI, quantn6k2AVX512VNNI,
	}}
}
