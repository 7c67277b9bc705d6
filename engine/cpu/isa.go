package cpu

import (
	"fmt"
	"os"
	"slices"

	machine "golang.org/x/sys/cpu"

	"github.com/coppice-llm/coppice/internal/enum"
)

// ISA names a path: a set of kernels written for one instruction set. All paths give the same
// bits; they differ in speed and in how weights are packed.
type ISA string

// The paths, slowest first.
const (
	Portable ISA = "portable" // plain Go, on every target
	AVX2     ISA = "avx2"     // with FMA
	AVX512   ISA = "avx512"   // F, BW, DQ and VL
)

// ISAVariable is the environment variable that forces a path where Config.ISA is
// empty, so that tests can run on each path of one machine.
const ISAVariable = "COPPICE_CPU"

func (i ISA) String() string { return string(i) }

// UnmarshalText accepts the name of a path. The error for any other text lists the names.
func (i *ISA) UnmarshalText(text []byte) error {
	return enum.Pick("cpu", "instruction set", i, text, Portable, AVX2, AVX512)
}

// ISAs returns the paths that this machine can run, slowest first. Portable is always there.
func ISAs() []ISA {
	isas := []ISA{Portable}
	x := &machine.X86 // all false on other targets
	if kernelsOf(AVX2) != nil && x.HasAVX2 && x.HasFMA {
		isas = append(isas, AVX2)
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
			isas = append(isas, AVX512)
		}
	}
	return isas
}

// chooseISA returns want if it is set, else the path named by COPPICE_CPU, else the fastest
// path. It fails if the machine can't run the path that was asked for.
func chooseISA(want ISA) (ISA, error) {
	from := "Config.ISA"
	if want == "" {
		want, from = ISA(os.Getenv(ISAVariable)), ISAVariable
	}
	isas := ISAs()
	switch {
	case want == "":
		return isas[len(isas)-1], nil
	case !slices.Contains(isas, want):
		return "", fmt.Errorf("cpu: %s is %q, this machine can run %v", from, string(want), isas)
	}
	return want, nil
}
