package cpu

//go:generate go -C ../../tools/neon run . -set floats -isa neon -out ../../engine/cpu/kernel_neon_arm64.s -stubs ../../engine/cpu/kernel_neon_arm64.go
//go:generate go -C ../../tools/neon run . -set quants -isa neon -out ../../engine/cpu/kernel_neonquant_arm64.s -stubs ../../engine/cpu/kernel_neonquant_arm64.go
//go:generate go -C ../../tools/neon run . -set quants -isa neondot -out ../../engine/cpu/kernel_neondotquant_arm64.s -stubs ../../engine/cpu/kernel_neondotquant_arm64.go

// kernelsOf returns the kernels of a path, nil for an unknown name. It does not check that the
// machine can run the path.
func kernelsOf(isa ISA) *kernels {
	switch isa {
	case Portable:
		return &kernels{isa: Portable}
	case NEON:
		return kernelsNEON(isa, quantNEON())
	case NEONDot:
		return kernelsNEON(isa, quantNEONDOT())
	}
	return nil
}

func kernelsNEON(isa ISA, quant *quantKernels) *kernels {
	quarters, halves := []int{0, 16, 32, 48}, []int{0, 32}
	return &kernels{
		isa: isa, quant: quant, quads: true,
		tiles: []tile{
			{rows: 6, columns: quarters, f32: gemm6x16f32NEON, bf16: gemm6x16bf16NEON, f16: gemm6x16f16NEON},
			{rows: 5, columns: quarters, f32: gemm5x16f32NEON, bf16: gemm5x16bf16NEON, f16: gemm5x16f16NEON},
			{rows: 4, columns: quarters, f32: gemm4x16f32NEON, bf16: gemm4x16bf16NEON, f16: gemm4x16f16NEON},
			{rows: 3, columns: halves, f32: gemm3x32f32NEON, bf16: gemm3x32bf16NEON, f16: gemm3x32f16NEON},
			{rows: 2, columns: halves, f32: gemm2x32f32NEON, bf16: gemm2x32bf16NEON, f16: gemm2x32f16NEON},
			{rows: 1, columns: []int{0}, f32: gemm1x64f32NEON, bf16: gemm1x64bf16NEON, f16: gemm1x64f16NEON},
		},
		scores: scoresNEON, softmax: softmaxNEON, values: valuesNEON,
		squares: squaresNEON, scale: scaleNEON, silu: siluNEON, siluPairs: siluPairsNEON, stream: streamNEON,
		add: addNEON, rotate: rotateNEON, quantize: quantizeNEON, fetch: fetchNEON, narrowF16: narrowF16NEON, widenF16: widenF16NEON, widenBF16: widenBF16NEON, widenQ8: widenQ8NEON,
	}
}

func quantNEON() *quantKernels {
	return &quantKernels{order: byGroups, byKind: [len(quantKinds)]quantKernel{
		quantn4hNEON, quantn4hmNEON, quantn4kmNEON, quantt4hNEON, quantt4wNEON, quantb8hNEON, quantn5hNEON, quantn5hmNEON, quantn5kmNEON, quantn6k2NEON,
	}}
}

func quantNEONDOT() *quantKernels {
	return &quantKernels{order: byGroups, byKind: [len(quantKinds)]quantKernel{
		quantn4hNEONDOT, quantn4hmNEONDOT, quantn4kmNEONDOT, quantt4hNEONDOT, quantt4wNEONDOT, quantb8hNEONDOT, quantn5hNEONDOT, quantn5hmNEONDOT, quantn5kmNEONDOT, quantn6k2NEONDOT,
	}}
}
