package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// feature is a part of the instruction set that only some processors have.
type feature string

const dot feature = "FEAT_DotProd" // SDOT, UDOT

// assembly is a file in the making.
type assembly struct {
	suffix   string // of the names of its functions: the level in capitals
	features []feature
	text     strings.Builder
	stubs    strings.Builder
	refused  []string // instructions that the level lacks
	consts   []uint32
}

// reg is a general register, vec a vector register. Both print as the GNU assembler names them.
type (
	reg int
	vec int
)

func (r reg) String() string { return fmt.Sprintf("R%d", int(r)) }

// general lists the registers that a leaf function may change: Go and the operating system reserve the
// others.
var general = []reg{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25}

// kernel is a function in the making.
type kernel struct {
	*assembly
	name   string
	params map[string]string // name to operand
	regs   int               // that are taken, of general
	vecs   int               // that are taken
}

// kernel begins a function. It calls no other function and so needs no check of the stack. signature is
// the function's, without func and name; doc ends the comment of the stub.
func (a *assembly) kernel(name, signature, doc string) *kernel {
	k := &kernel{assembly: a, name: name + a.suffix, params: map[string]string{}}
	args, results, _ := strings.Cut(strings.TrimPrefix(signature, "("), ")")
	size := k.lay(args, 0)
	if results = strings.Trim(results, " ()"); results != "" {
		size = k.lay(results, (size+7)&^7)
	}
	fmt.Fprintf(&a.text, "\n// func %s%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", k.name, signature, k.name, size)
	fmt.Fprintf(&a.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s%s\n", k.name, doc, k.name, signature)
	return k
}

// lay places parameters in the frame of the caller, from offset at on, and returns the end.
func (k *kernel) lay(list string, at int) int {
	fields := strings.Split(list, ", ")
	typ := ""
	types := make([]string, len(fields))
	for i, f := range slices.Backward(fields) { // "a, b int": the type follows the last name
		if _, t, ok := strings.Cut(f, " "); ok {
			typ = t
		}
		types[i] = typ
	}
	for i, f := range fields {
		name, _, _ := strings.Cut(f, " ")
		size := 8
		if types[i] == "float32" || types[i] == "uint32" {
			size = 4
		}
		at = (at + size - 1) &^ (size - 1)
		k.params[name] = fmt.Sprintf("%s+%d(FP)", name, at)
		at += size
	}
	return at
}

// op writes a line in the syntax of Go's assembler.
func (k *kernel) op(format string, args ...any) { fmt.Fprintf(&k.text, "\t"+format+"\n", args...) }

// label writes a label.
func (k *kernel) label(name string) { fmt.Fprintf(&k.text, "\n%s:\n", name) }

// end writes the return.
func (k *kernel) end() { k.op("RET") }

// word writes an instruction that Go's assembler lacks. It is refused if the level lacks a feature that
// the instruction needs. gnu is its text as the GNU disassembler writes it.
func (k *kernel) word(code uint32, needs feature, gnu string, args ...any) {
	text := fmt.Sprintf(gnu, args...)
	if needs != "" && !slices.Contains(k.features, needs) {
		k.refused = append(k.refused, fmt.Sprintf("%s: %s needs %s", k.name, text, needs))
	}
	k.op("WORD $0x%08x // %s", code, text)
}

// reg takes a general register.
func (k *kernel) reg() reg {
	if k.regs == len(general) {
		panic(k.name + ": no general register is left")
	}
	k.regs++
	return general[k.regs-1]
}

// load takes a register and loads a parameter of 8 bytes into it.
func (k *kernel) load(param string) reg {
	r := k.reg()
	k.op("MOVD %s, %v", k.param(param), r)
	return r
}

// param returns a parameter as an operand.
func (k *kernel) param(name string) string {
	p, ok := k.params[name]
	if !ok {
		panic(k.name + " has no parameter " + name)
	}
	return p
}

// copied takes a register and copies r into it.
func (k *kernel) copied(r reg) reg {
	c := k.reg()
	k.op("MOVD %v, %v", r, c)
	return c
}

// rows takes registers for pointers to n rows, stride bytes apart from base.
func (k *kernel) rows(base, stride reg, n int) []reg {
	rows := []reg{k.copied(base)}
	for range n - 1 {
		next := k.reg()
		k.op("ADD %v, %v, %v", stride, rows[len(rows)-1], next)
		rows = append(rows, next)
	}
	return rows
}

// vectors takes n consecutive vector registers.
func (k *kernel) vectors(n int) []vec {
	if k.vecs+n > 32 {
		panic(fmt.Sprintf("%s: %d vector registers are left, %d wanted", k.name, 32-k.vecs, n))
	}
	v := make([]vec, n)
	for i := range v {
		v[i] = vec(k.vecs + i)
	}
	k.vecs += n
	return v
}

func (k *kernel) vector() vec { return k.vectors(1)[0] }

// block runs body and returns the registers that body takes.
func (k *kernel) block(body func()) {
	regs, vecs := k.regs, k.vecs
	body()
	k.regs, k.vecs = regs, vecs
}

// loop writes body and its repetition: n counts down by step to 0.
func (k *kernel) loop(label string, n reg, step int, body func()) {
	k.label(label)
	body()
	k.op("SUBS $%d, %v, %v", step, n, n)
	k.op("BNE %s", label)
}

// while writes body and its repetition as long as n is at least step; then n counts down by step.
func (k *kernel) while(label string, n reg, step int, body func()) {
	k.label(label)
	k.op("CMP $%d, %v", step, n)
	k.op("BLT %sEnd", label)
	k.block(body)
	k.op("SUB $%d, %v, %v", step, n, n)
	k.op("JMP %s", label)
	k.label(label + "End")
}

// constants loads f32 constants or other words, each into all lanes of a vector.
func (k *kernel) constants(bits ...uint32) []vec {
	v, at := k.vectors(len(bits)), k.reg()
	for i, b := range bits {
		k.op("MOVD $constants%s<>+%d(SB), %v", k.suffix, k.constant(b), at)
		k.op("VLD1R (%v), [V%d.S4]", at, v[i])
	}
	k.regs--
	return v
}

// four loads four constants into the lanes of a vector.
func (k *kernel) four(bits ...uint32) vec {
	v, at := k.vector(), k.reg()
	first := len(k.consts)
	k.consts = append(k.consts, bits...)
	k.op("MOVD $constants%s<>+%d(SB), %v", k.suffix, 4*first, at)
	k.op("VLD1 (%v), [V%d.S4]", at, v)
	k.regs--
	return v
}

// constant returns the offset of a constant in the file's table.
func (a *assembly) constant(bits uint32) int {
	i := slices.Index(a.consts, bits)
	if i < 0 {
		i = len(a.consts)
		a.consts = append(a.consts, bits)
	}
	return 4 * i
}

// table returns the definition of the constants.
func (a *assembly) table() string {
	if len(a.consts) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n")
	for i, c := range a.consts {
		fmt.Fprintf(&b, "DATA constants%s<>+%d(SB)/4, $0x%08x\n", a.suffix, 4*i, c)
	}
	fmt.Fprintf(&b, "GLOBL constants%s<>(SB), RODATA|NOPTR, $%d\n", a.suffix, 4*len(a.consts))
	return b.String()
}

// float returns the bits of an f32.
func float(x float64) uint32 { return math.Float32bits(float32(x)) }
