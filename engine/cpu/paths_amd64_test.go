package cpu

// productPaths returns the paths of this machine and, where the machine has VNNI, variants of
// them with the quantised products of plain AVX2.
func productPaths() []*kernels {
	var all []*kernels
	for _, isa := range ISAs() {
		ops := kernelsOf(isa)
		all = append(all, ops)
		if ops.vector() && ops.quant.biased {
			plain := *ops
			plain.quant = quantAVX2()
			all = append(all, &plain)
		}
	}
	return all
}
