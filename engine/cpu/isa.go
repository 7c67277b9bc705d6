package cpu

import (
	"fmt"
	"os"
	"slices"

	"github.com/coppice-llm/coppice/internal/enum"
	levels "github.com/coppice-llm/coppice/internal/isa"
)

// ISA names a path: a fixed set of kernels written for one instruction set. A path is Portable or
// a level of package isa, and uses no feature of the processor that the level does not promise. All
// paths give the same bits; they differ in speed and in how weights are packed.
type ISA string

// The paths, slowest first. A path with VNNI or Dot differs from the one before in its products
// with quantised weights.
const (
	Portable   ISA = "portable"             // plain Go, on every target
	AVX2       ISA = ISA(levels.AVX2)       // with FMA and F16C
	AVXVNNI    ISA = ISA(levels.AVXVNNI)    // AVX2 with AVX-VNNI
	AVX512     ISA = ISA(levels.AVX512)     // F, BW, DQ and VL
	AVX512VNNI ISA = ISA(levels.AVX512VNNI) // AVX512 with AVX512-VNNI
	NEON       ISA = ISA(levels.NEON)       // on every arm64
	NEONDot    ISA = ISA(levels.NEONDot)    // NEON with FEAT_DotProd
)

// ISAVariable is the environment variable that forces a path where Config.ISA is
// empty, so that tests can run on each path of one machine.
const ISAVariable = "COPPICE_CPU"

func (i ISA) String() string { return string(i) }

// UnmarshalText accepts the name of a path. The error for any other text lists the names.
func (i *ISA) UnmarshalText(text []byte) error {
	return enum.Pick("cpu", "instruction set", i, text, Portable, AVX2, AVXVNNI, AVX512, AVX512VNNI, NEON, NEONDot)
}

// ISAs returns the paths that this machine can run, slowest first. Portable is always there.
func ISAs() []ISA {
	isas := []ISA{Portable}
	for _, level := range levels.Levels() {
		if kernelsOf(ISA(level)) != nil && level.Runs() {
			isas = append(isas, ISA(level))
		}
	}
	return isas
}

// chooseISA returns want if it is set, else the path named by COPPICE_CPU, else the fastest path that
// passes test. left holds the faults of faster paths. chooseISA fails if the machine can't run the
// path that was asked for, or if that path does not pass.
func chooseISA(want ISA, test func(ISA) error) (isa ISA, left []error, err error) {
	from := "Config.ISA"
	if want == "" {
		want, from = ISA(os.Getenv(ISAVariable)), ISAVariable
	}
	isas := ISAs()
	if want == "" {
		for _, isa := range slices.Backward(isas) {
			if err := test(isa); err != nil {
				left = append(left, err)
				continue
			}
			return isa, left, nil
		}
	}
	if !slices.Contains(isas, want) {
		return "", nil, fmt.Errorf("cpu: %s is %q, this machine can run %v", from, string(want), isas)
	}
	if err := test(want); err != nil {
		return "", nil, fmt.Errorf("cpu: %s is %q, which computes wrongly on this processor; leave it empty: %w", from, string(want), err)
	}
	return want, nil, nil
}
