//go:build !amd64 && !arm64

package cpu

// kernelsOf knows the portable path only and returns nil for any other.
func kernelsOf(isa ISA) *kernels {
	if isa == Portable {
		return &kernels{isa: Portable}
	}
	return nil
}
