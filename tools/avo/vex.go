package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
)

// dotProduct matches VPDPBUSD on 256-bit registers. Go's assembler encodes it only in the EVEX form of
// AVX-512.
var dotProduct = regexp.MustCompile(`(?m)^\tVPDPBUSD +Y(\d+), Y(\d+), Y(\d+)$`)

// nameVEX replaces the features of a dot product that vexDots will write in its VEX form. avo knows only
// those of the EVEX form.
func (t *target) nameVEX(i *ir.Instruction) error {
	if t.vexDot && i.Opcode == "VPDPBUSD" && len(i.Suffixes) == 0 && operand.IsYMM(i.Operands[0]) {
		i.ISA = []string{"AVXVNNI"}
	}
	return nil
}

// vexDots replaces dot products in assembly by the bytes of their VEX form (Intel's manual, volume 2,
// VPDPBUSD: VEX.256.66.0F38.W0 50 /r), which processors with AVX-VNNI but without AVX-512 can run. The
// target's check has refused registers above 15.
func vexDots(assembly []byte) ([]byte, error) {
	assembly = dotProduct.ReplaceAllFunc(assembly, func(line []byte) []byte {
		var y [3]int
		for i, digits := range dotProduct.FindSubmatch(line)[1:] {
			y[i], _ = strconv.Atoi(string(digits))
		}
		b := dotProductVEX(y[0], y[1], y[2])
		return fmt.Appendf(nil, "\tBYTE $0x%02x; BYTE $0x%02x; BYTE $0x%02x; BYTE $0x%02x; BYTE $0x%02x // %s", b[0], b[1], b[2], b[3], b[4], bytes.TrimSpace(line))
	})
	if bytes.Contains(bytes.ReplaceAll(assembly, []byte("// VPDPBUSD"), nil), []byte("VPDPBUSD")) {
		return nil, fmt.Errorf("a dot product has a form that vexDots does not know")
	}
	return assembly, nil
}

// dotProductVEX encodes the addition to register sum of the products of signed and unsigned bytes.
func dotProductVEX(signed, unsigned, sum int) [5]byte {
	inverted := func(register, bit int) byte { // the bit is cleared for registers 8 to 15
		if register > 7 {
			return 0
		}
		return 1 << bit
	}
	return [5]byte{
		0xc4,
		inverted(sum, 7) | 1<<6 | inverted(signed, 5) | 2, // R, X, B; map 0F38
		byte(^unsigned&15)<<3 | 1<<2 | 1,                  // W0, vvvv, 256 bits, 66
		0x50,
		3<<6 | byte(sum&7)<<3 | byte(signed&7),
	}
}
