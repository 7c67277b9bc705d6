package isa

import (
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// Level is the name of a set of features that a processor and its operating system may have.
type Level string

// The levels. A level with VNNI or Dot adds one instruction to the level before it, which sums the
// products of bytes.
const (
	AVX2       Level = "avx2"       // vectors of 256 bits, with FMA and F16C; Intel since Haswell, AMD since Zen
	AVXVNNI    Level = "avxvnni"    // AVX2 with AVX-VNNI
	AVX512     Level = "avx512"     // vectors of 512 bits: F, BW, DQ and VL
	AVX512VNNI Level = "avx512vnni" // AVX512 with AVX512-VNNI

	NEON    Level = "neon"    // arm64: vectors of 128 bits, which every processor has that Go runs on
	NEONDot Level = "neondot" // NEON with FEAT_DotProd; Arm since Cortex-A75 and Neoverse N1, Apple since A11
)

// Every feature that code of a level uses must be in its list: no feature implies another. F16C, for
// example, has a bit of its own, which a hypervisor may hide on a processor that has AVX2.
var (
	avx2   = []cpuid.FeatureID{cpuid.AVX, cpuid.AVX2, cpuid.FMA3, cpuid.F16C}
	avx512 = append(slices.Clone(avx2), cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL)

	features = map[Level][]cpuid.FeatureID{
		AVX2:       avx2,
		AVXVNNI:    append(slices.Clone(avx2), cpuid.AVXVNNI),
		AVX512:     avx512,
		AVX512VNNI: append(slices.Clone(avx512), cpuid.AVX512VNNI),
		NEON:       {cpuid.ASIMD},
		NEONDot:    {cpuid.ASIMD, cpuid.ASIMDDP},
	}
)

// Levels returns the levels of all architectures, slowest first within each.
func Levels() []Level { return []Level{AVX2, AVXVNNI, AVX512, AVX512VNNI, NEON, NEONDot} }

// Arch returns the architecture that the level belongs to, as Go names it, "" for an unknown level.
func (l Level) Arch() string {
	switch list := features[l]; {
	case len(list) == 0:
		return ""
	case list[0] == cpuid.ASIMD:
		return "arm64"
	}
	return "amd64"
}

// Features returns the features that the level promises, on amd64 on top of those that every processor
// has (SSE2 and older), nil for an unknown level. The slice is the caller's.
func (l Level) Features() []cpuid.FeatureID { return slices.Clone(features[l]) }

// Runs reports whether this machine has all features of the level, and its operating system saves
// the registers. Package cpuid reports AVX, AVX2 and AVX-VNNI only if bits 1 and 2 of XCR0 are set
// (XMM, YMM), and the features of AVX-512 only if bits 5 to 7 are set too (opmask, ZMM); on Darwin,
// which enables those on first use, it asks the kernel. On arm64 it asks Linux (auxiliary vector) and
// Darwin (sysctl); on other systems no level of arm64 runs. A level runs on its own architecture only.
func (l Level) Runs() bool {
	return runtime.GOARCH == l.Arch() && cpuid.CPU.Supports(features[l]...)
}

// Processor returns the name that the processor gives itself; "" if it has none.
func Processor() string { return strings.TrimSpace(cpuid.CPU.BrandName) }
