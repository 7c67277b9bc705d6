package cpu

// productPaths are the paths of this machine, and those that take the products of AVX2
// where the machine has better ones.
func productPaths() []*kernels {
	var all []*kernels
	for _, isa := range ISAs() {
		ops := kernelsOf(isa)
		all = append(all, ops)
		if ops.vector() && ops.biased {
			plain := *ops
			plain.quant, plain.biased = quantTilesAVX2(), false
			all = append(all, &plain)
		}
	}
	return all
}
