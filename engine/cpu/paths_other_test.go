//go:build !amd64

package cpu

// productPaths returns the paths of this machine.
func productPaths() []*kernels {
	var all []*kernels
	for _, isa := range ISAs() {
		all = append(all, kernelsOf(isa))
	}
	return all
}
