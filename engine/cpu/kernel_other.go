//go:build !amd64

package cpu

// kernelsOf has the portable path only.
func kernelsOf(isa ISA) *kernels {
	if isa == Portable {
		return &kernels{isa: Portable}
	}
	return nil
}
