package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// avo's names of features. MMX+, which avo gives prefetches and fences, is part of SSE.
var (
	baseline = []string{"MMX+", "SSE", "SSE2"} // of every amd64 processor
	avx2     = append(slices.Clone(baseline), "AVX", "AVX2", "F16C", "FMA3")
	avx512   = append(slices.Clone(avx2), "AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL")
)

// check returns an error for each kernel with an instruction that the target's features don't have; the
// error names its first one. avo chooses an instruction's features when it is recorded, and the registers
// later. A register that only EVEX can encode makes an instruction of AVX2 one of AVX-512, and Go's
// assembler accepts it. So file must have its registers allocated.
func (t *target) check(file *ir.File) error {
	var refused []error
	for _, f := range file.Functions() {
		if !strings.HasSuffix(f.Name, t.name) {
			refused = append(refused, fmt.Errorf("%s: the name does not end in %s", f.Name, t.name))
		}
		for _, i := range f.Instructions() {
			if reason := t.refuses(i); reason != "" {
				refused = append(refused, fmt.Errorf("%s: %s: %s", f.Name, assembly(i), reason))
				break
			}
		}
	}
	return errors.Join(refused...)
}

// refuses returns why the target can't run an instruction, "" if it can.
func (t *target) refuses(i *ir.Instruction) string {
	known := func(feature string) bool { return slices.Contains(t.features, feature) }
	if missing := slices.DeleteFunc(slices.Clone(i.ISA), known); len(missing) > 0 {
		return fmt.Sprintf("needs %s, which %s lacks", strings.Join(missing, " and "), t.name)
	}
	if known("AVX512VL") {
		return ""
	}
	if len(i.Suffixes) > 0 {
		return fmt.Sprintf("only EVEX has the suffix %s, and %s lacks EVEX", strings.Join(i.Suffixes, "."), t.name)
	}
	for _, op := range i.Operands {
		for _, r := range operand.Registers(op) {
			switch p := reg.ToPhysical(r); {
			case r.Kind() == reg.KindOpmask:
				return fmt.Sprintf("%s is a mask register, which %s lacks", r.Asm(), t.name)
			case r.Kind() == reg.KindVector && r.Size() > 32:
				return fmt.Sprintf("%s has 512 bits, more than registers of %s", r.Asm(), t.name)
			case r.Kind() == reg.KindVector && (p == nil || p.PhysicalIndex() > 15):
				return fmt.Sprintf("%s is none of the registers 0 to 15 of %s: the kernel needs too many at once", r.Asm(), t.name)
			}
		}
	}
	return ""
}

// assembly returns an instruction as text.
func assembly(i *ir.Instruction) string {
	var ops []string
	for _, op := range i.Operands {
		ops = append(ops, op.Asm())
	}
	return i.OpcodeWithSuffixes() + " " + strings.Join(ops, ", ")
}
