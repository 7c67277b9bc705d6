package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/reg"
)

// compile returns a file with one function, which body records, for the target t.
func compile(t *testing.T, to *target, name string, body func(c *build.Context)) *ir.File {
	t.Helper()
	c := build.NewContext()
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(p *byte)")
	body(c)
	c.RET()
	file, err := c.Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := pass.Concat(pass.InstructionPass(to.nameVEX), pass.Compile).Execute(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// tooMany needs 17 registers at once: the allocator takes Y16 for the last one.
func tooMany(c *build.Context) {
	var live [17]reg.VecVirtual
	for i := range live {
		live[i] = c.YMM()
		c.VPXOR(live[i], live[i], live[i])
	}
	for _, v := range live[1:] {
		c.VPADDD(v, live[0], live[0])
	}
}

func dotProducts(c *build.Context) { c.VPDPBUSD(reg.Y1, reg.Y2, reg.Y3) }

// TestInstructionsAreRefused plants instructions that a target's processors lack.
func TestInstructionsAreRefused(t *testing.T) {
	for what, c := range map[string]struct {
		level, name string
		body        func(c *build.Context)
		wants       []string // none if the target takes the function
	}{
		"17 registers":                {"avx2", "fAVX2", tooMany, []string{"fAVX2", "VPXOR", "Y16", "registers 0 to 15"}},
		"17 registers with VNNI":      {"avxvnni", "fAVXVNNI", tooMany, []string{"Y16"}},
		"17 registers of AVX-512":     {"avx512", "fAVX512", tooMany, nil},
		"Y16 by hand":                 {"avx2", "fAVX2", func(c *build.Context) { c.VPADDD(reg.Y1, reg.Y16, reg.Y2) }, []string{"VPADDD Y1, Y16, Y2", "Y16 is none"}},
		"X16 in scalar code":          {"avx2", "fAVX2", func(c *build.Context) { c.VADDSS(reg.X1, reg.X2, reg.X16) }, []string{"X16 is none"}},
		"a dot product":               {"avx2", "fAVX2", dotProducts, []string{"VPDPBUSD Y1, Y2, Y3", "AVX512VNNI", "AVX2 lacks"}},
		"a dot product without VNNI":  {"avx512", "fAVX512", dotProducts, []string{"AVX512VNNI"}},
		"a dot product of 128 bits":   {"avxvnni", "fAVXVNNI", func(c *build.Context) { c.VPDPBUSD(reg.X1, reg.X2, reg.X3) }, []string{"AVX512VNNI"}},
		"a dot product of AVX-VNNI":   {"avxvnni", "fAVXVNNI", dotProducts, nil},
		"a dot product of AVX-512":    {"avx512vnni", "fAVX512VNNI", dotProducts, nil},
		"a mnemonic of EVEX":          {"avx2", "fAVX2", func(c *build.Context) { c.VPANDD(reg.Y1, reg.Y2, reg.Y3) }, []string{"VPANDD", "AVX512"}},
		"a mask register":             {"avx2", "fAVX2", func(c *build.Context) { c.KMOVW(reg.K1, reg.K2) }, []string{"KMOVW K1, K2", "AVX512F"}},
		"a ZMM register":              {"avx2", "fAVX2", func(c *build.Context) { c.VADDPS(reg.Z1, reg.Z2, reg.Z3) }, []string{"VADDPS Z1, Z2, Z3", "AVX512F"}},
		"a feature of no target":      {"avx512vnni", "fAVX512VNNI", func(c *build.Context) { c.PDEPQ(reg.RAX, reg.RCX, reg.RDX) }, []string{"PDEPQ", "BMI2"}},
		"a level that the name lacks": {"avx2", "f", func(c *build.Context) {}, []string{"does not end in AVX2"}},
	} {
		to := newTarget(c.level)
		err := to.check(compile(t, to, c.name, c.body))
		if (err != nil) != (c.wants != nil) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not mention %q", what, err, want)
			}
		}
	}
}

// TestOperandsAreRefused: the operands alone tell that an instruction is one of AVX-512, should avo's list
// of features not say so.
func TestOperandsAreRefused(t *testing.T) {
	gather := operand.Mem{Base: reg.RAX, Index: reg.Y17, Scale: 4}
	for want, i := range map[string]*ir.Instruction{
		"K3 is a mask register":           {Opcode: "VMOVUPS", Operands: []operand.Op{reg.K3}},
		"Z5 has 512 bits":                 {Opcode: "VMOVUPS", Operands: []operand.Op{reg.Y1, reg.Z5}},
		"only EVEX has the suffix RN_SAE": {Opcode: "VMOVUPS", Suffixes: []string{"RN_SAE"}, Operands: []operand.Op{reg.Y1}},
		"Y17 is none":                     {Opcode: "VGATHERDPS", Operands: []operand.Op{gather}},
	} {
		if got := newTarget("avx2").refuses(i); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if got := newTarget("avx512").refuses(i); got != "" {
			t.Errorf("AVX512 refuses %s: %s", assembly(i), got)
		}
	}
}

// TestRefusedKernelLeavesTheFiles records a kernel that AVX2 refuses next to those of a set: nothing is
// written.
func TestRefusedKernelLeavesTheFiles(t *testing.T) {
	dir := t.TempDir()
	out, stubs := filepath.Join(dir, "k.s"), filepath.Join(dir, "k.go")
	for _, path := range []string{out, stubs} {
		if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build.TEXT("plantedAVX2", attr.NOSPLIT, "func()")
	build.VPADDD(reg.Y1, reg.Y16, reg.Y2)
	build.RET()
	err := run([]string{"-isa", "avx2", "-set", "hashcopy", "-pkg", "hashcopy", "-out", out, "-stubs", stubs})
	if err == nil || !strings.Contains(err.Error(), "plantedAVX2: VPADDD Y1, Y16, Y2") {
		t.Errorf("error %v", err)
	}
	for _, path := range []string{out, stubs} {
		if text, err := os.ReadFile(path); err != nil || string(text) != "before" {
			t.Errorf("%s: %v, now %q", path, err, text)
		}
	}
}
