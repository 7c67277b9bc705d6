package isatest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// instruction is a decoded instruction.
type instruction struct {
	code []byte
	text string // as objdump writes it in Intel's syntax
}

func (i instruction) String() string { return fmt.Sprintf("%s (% x)", i.text, i.code) }

// encoding is the way in which an instruction is encoded: it decides which features a mnemonic needs.
type encoding string

const (
	legacy encoding = "legacy" // of SSE2 and before
	vex    encoding = "VEX"    // registers 0 to 15, at most 256 bits
	evex   encoding = "EVEX"   // of AVX-512: registers 0 to 31, masks, 512 bits
)

// encoding returns the encoding by the first byte after prefixes (Intel's manual, volume 2, 2.1 to 2.7).
// In 64-bit code 62, C4 and C5 have no other meaning.
func (i instruction) encoding() encoding {
	code := i.code
	for len(code) > 1 && slices.Contains([]byte{0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3}, code[0]) {
		code = code[1:]
	}
	switch code[0] {
	case 0x62:
		return evex
	case 0xc4, 0xc5:
		return vex
	}
	return legacy
}

var (
	annotation = regexp.MustCompile(`^\{\w+\} +| *#.*$`)   // {vex} before a mnemonic; the address that an operand means
	comparison = regexp.MustCompile(`^vcmp\w*([ps][ds])$`) // vcmplt_oqps is vcmpps with a predicate
)

// needs returns the features that the processor must have to run i.
func (i instruction) needs() ([]cpuid.FeatureID, error) {
	mnemonic, operands, _ := strings.Cut(annotation.ReplaceAllString(i.text, ""), " ")
	if mnemonic == "" || strings.ContainsAny(mnemonic[:1], "(.") {
		return nil, fmt.Errorf("objdump can't decode it")
	}
	mnemonic = comparison.ReplaceAllString(mnemonic, "vcmp$1")
	coded := i.encoding()
	features, ok := instructions[coded][mnemonic]
	if !ok {
		return nil, fmt.Errorf("no list has %s in its %s form: add it to internal/isa/isatest/table.go, to the feature that Intel's manual gives for it", mnemonic, coded)
	}
	if coded == evex && !strings.Contains(operands, "zmm") { // the manual excepts scalar ones
		features = append(slices.Clone(features), cpuid.AVX512VL)
	}
	return features, nil
}

// check returns why code of a level with the features can't have the instruction, nil if it can.
func (i instruction) check(promised []cpuid.FeatureID) error {
	features, err := i.needs()
	if err != nil {
		return fmt.Errorf("%v: %w", i, err)
	}
	var missing []string
	for _, f := range features {
		if !slices.Contains(promised, f) {
			missing = append(missing, f.String())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%v: its %s form needs %s, which the level does not promise", i, i.encoding(), strings.Join(missing, " and "))
	}
	return nil
}
