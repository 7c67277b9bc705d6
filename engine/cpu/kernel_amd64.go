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
			{rows: 4, columns: quarters, f32: gemm4x16f32AVX2, bf16: gemm4x16bf16AVX2, f16: gemm4x16f16AVX2},
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
			{rows: 4, columns: whole, f32: gemm4x64f32AVX512, bf16: gemm4x64bf16AVX512, f16: gemm4x64f16AVX512},
			{rows: 2, columns: whole, f32: gemm2x64f32AVX512, bf16: gemm2x64bf16AVX512, f16: gemm2x64f16AVX512},
			{rows: 1, columns: whole, f32: gemm1x64f32AVX512, bf16: gemm1x64bf16AVX512, f16: gemm1x64f16AVX512},
		},
		scores: scoresAVX512, softmax: softmaxAVX512, values: valuesAVX512,
		squares: squaresAVX512, scale: scaleAVX512, silu: siluAVX512, siluPairs: siluPairsAVX512, stream: streamAVX512,
		add: addAVX2, rotate: rotateAVX2, quantize: quantizeAVX2, fetch: fetchAVX2, narrowF16: narrowF16AVX2, widenF16: widenF16AVX512, widenBF16: widenBF16AVX512, widenQ8: widenQ8AVX512,
	}
}

func quantAVX2() *quantKernels {
	return &quantKernels{expand: [2]expansion{expand5AVX2, expand6AVX2}, tiles: []quantTile{
		{rows: 4, columns: []int{0, 16, 32, 48}, byKind: [len(quantKinds)]quantKernel{
			quant4x16n4hAVX2, quant4x16n4hmAVX2, quant4x16n4kmAVX2, quant4x16t4hAVX2, quant4x16t4wAVX2, quant4x16b8hAVX2, quant4x16b5hAVX2, quant4x16b5hmAVX2, quant4x16b5kmAVX2, quant4x16b6k2AVX2,
		}},
		{rows: 2, columns: []int{0, 16, 32, 48}, byKind: [len(quantKinds)]quantKernel{
			quant2x16n4hAVX2, quant2x16n4hmAVX2, quant2x16n4kmAVX2, quant2x16t4hAVX2, quant2x16t4wAVX2, quant2x16b8hAVX2, quant2x16b5hAVX2, quant2x16b5hmAVX2, quant2x16b5kmAVX2, quant2x16b6k2AVX2,
		}},
		{rows: 1, columns: []int{0}, byKind: [len(quantKinds)]quantKernel{
			quant1x64n4hAVX2, quant1x64n4hmAVX2, quant1x64n4kmAVX2, quant1x64t4hAVX2, quant1x64t4wAVX2, quant1x64b8hAVX2, quant1x64b5hAVX2, quant1x64b5hmAVX2, quant1x64b5kmAVX2, quant1x64b6k2AVX2,
			quant1x64n5hAVX2, quant1x64n5hmAVX2, quant1x64n5kmAVX2, quant1x64n6k2AVX2,
		}},
	}}
}

func quantAVXVNNI() *quantKernels {
	return &quantKernels{biased: true, expand: [2]expansion{expand5AVX2, expand6AVX2}, tiles: []quantTile{
		{rows: 4, columns: []int{0, 16, 32, 48}, byKind: [len(quantKinds)]quantKernel{
			quant4x16n4hAVXVNNI, quant4x16n4hmAVXVNNI, quant4x16n4kmAVXVNNI, quant4x16t4hAVXVNNI, quant4x16t4wAVXVNNI, quant4x16b8hAVXVNNI, quant4x16b5hAVXVNNI, quant4x16b5hmAVXVNNI, quant4x16b5kmAVXVNNI, quant4x16b6k2AVXVNNI,
		}},
		{rows: 2, columns: []int{0, 16, 32, 48}, byKind: [len(quantKinds)]quantKernel{
			quant2x16n4hAVXVNNI, quant2x16n4hmAVXVNNI, quant2x16n4kmAVXVNNI, quant2x16t4hAVXVNNI, quant2x16t4wAVXVNNI, quant2x16b8hAVXVNNI, quant2x16b5hAVXVNNI, quant2x16b5hmAVXVNNI, quant2x16b5kmAVXVNNI, quant2x16b6k2AVXVNNI,
		}},
		{rows: 1, columns: []int{0}, byKind: [len(quantKinds)]quantKernel{
			quant1x64n4hAVXVNNI, quant1x64n4hmAVXVNNI, quant1x64n4kmAVXVNNI, quant1x64t4hAVXVNNI, quant1x64t4wAVXVNNI, quant1x64b8hAVXVNNI, quant1x64b5hAVXVNNI, quant1x64b5hmAVXVNNI, quant1x64b5kmAVXVNNI, quant1x64b6k2AVXVNNI,
			quant1x64n5hAVXVNNI, quant1x64n5hmAVXVNNI, quant1x64n5kmAVXVNNI, quant1x64n6k2AVXVNNI,
		}},
	}}
}

func quantAVX512VNNI() *quantKernels {
	return &quantKernels{biased: true, expand: [2]expansion{expand5AVX512, expand6AVX512}, tiles: []quantTile{
		{rows: 4, columns: []int{0, 32}, byKind: [len(quantKinds)]quantKernel{
			quant4x32n4hAVX512VNNI, quant4x32n4hmAVX512VNNI, quant4x32n4kmAVX512VNNI, quant4x32t4hAVX512VNNI, quant4x32t4wAVX512VNNI, quant4x32b8hAVX512VNNI, quant4x32b5hAVX512VNNI, quant4x32b5hmAVX512VNNI, quant4x32b5kmAVX512VNNI, quant4x32b6k2AVX512VNNI,
		}},
		{rows: 1, columns: []int{0}, byKind: [len(quantKinds)]quantKernel{
			quant1x64n4hAVX512VNNI, quant1x64n4hmAVX512VNNI, quant1x64n4kmAVX512VNNI, quant1x64t4hAVX512VNNI, quant1x64t4wAVX512VNNI, quant1x64b8hAVX512VNNI, quant1x64b5hAVX512VNNI, quant1x64b5hmAVX512VNNI, quant1x64b5kmAVX512VNNI, quant1x64b6k2AVX512VNNI,
			quant1x64n5hAVX512VNNI, quant1x64n5hmAVX512VNNI, quant1x64n5kmAVX512VNNI, quant1x64n6k2AVX512VNNI,
		}},
	}}
}
