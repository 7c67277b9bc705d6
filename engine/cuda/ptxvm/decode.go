package ptxvm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// kind is the effect of an instruction on the flow of a warp.
type kind uint8

const (
	plain      kind = iota // lanes in the mask, then the next instruction
	branch                 // to target
	exit                   // the lanes end
	barrier                // waits for the block
	collective             // all lanes of the warp together
)

// instr is one decoded instruction. Operands are indices in the warp's register file, which also
// holds the constants.
type instr struct {
	do         func(w *warp, in *instr, mask uint32)
	f1         func(a uint64) uint64
	f2         func(a, b uint64) uint64
	f3         func(a, b, c uint64) uint64
	cmp        func(a, b uint64) bool
	kind       kind
	negated    bool
	signed     bool
	size       uint8 // bytes of one element of a load or store
	pred       int32 // -1: none
	d, a, b, c int32
	more       []int32
	imm        int64
	target     int32
	file, line int32
	text       string
}

// decoder builds one kernel.
type decoder struct {
	k          *Kernel
	outer      map[string][]string
	labels     map[string]int
	jumps      map[int]string   // instruction -> its target label
	prefixes   map[string]int32 // prefix of registers -> index of the first one
	predicates map[string]int32
	constants  map[uint64]int32
	specials   map[string]int32
	file, line int
	dynamic    bool // the offset of dynamic shared memory is fixed
}

func newDecoder(name string, outer map[string][]string) *decoder {
	return &decoder{
		k:     &Kernel{Name: name, MaxThreads: 1024, params: map[string]int{}, shared: map[string]int{}},
		outer: outer, labels: map[string]int{}, jumps: map[int]string{}, prefixes: map[string]int32{}, predicates: map[string]int32{},
		constants: map[uint64]int32{}, specials: map[string]int32{},
	}
}

func (d *decoder) param(kind, name string) error {
	size := sizes[strings.TrimPrefix(kind, ".")]
	if size == 0 {
		return fmt.Errorf("parameter of unknown type %s", kind)
	}
	at := roundUp(d.k.ParamBytes, size)
	d.k.params[name] = at
	d.k.ParamBytes = at + size
	return nil
}

// declare reserves indices for the registers %r<n>.
func (d *decoder) declare(kind, names string) error {
	prefix, rest, ok := strings.Cut(names, "<")
	n, err := strconv.Atoi(strings.TrimSuffix(rest, ">"))
	if !ok || err != nil {
		return fmt.Errorf("bad declaration of registers: %s", names)
	}
	if kind == ".pred" {
		d.predicates[prefix] = int32(d.k.preds)
		d.k.preds += n
		return nil
	}
	d.prefixes[prefix] = int32(d.k.regs)
	d.k.regs += n
	return nil
}

// sharedVariable reads ".align 16 .b8 name[n]".
func (d *decoder) sharedVariable(fields []string) error {
	align, size := 16, 0
	if len(fields) == 4 && fields[0] == ".align" {
		a, err := strconv.Atoi(fields[1])
		if err != nil {
			return err
		}
		align, size = a, sizes[strings.TrimPrefix(fields[2], ".")]
	}
	name, n, err := array(fields[len(fields)-1])
	if size == 0 || err != nil || d.dynamic {
		return fmt.Errorf("bad shared variable: %s", strings.Join(fields, " "))
	}
	at := roundUp(d.k.SharedBytes, align)
	d.k.shared[name] = at
	d.k.SharedBytes = at + n*size
	return nil
}

// statement decodes one instruction.
func (d *decoder) statement(text string) error {
	in := instr{pred: -1, file: int32(d.file), line: int32(d.line), text: text}
	rest := text
	if guard, ok := strings.CutPrefix(rest, "@"); ok {
		guard, rest, _ = strings.Cut(guard, " ")
		name, negated := strings.CutPrefix(guard, "!")
		p, err := d.predicate(name)
		if err != nil {
			return err
		}
		in.pred, in.negated = p, negated
	}
	opcode, operands := strings.TrimSpace(rest), ""
	if at := strings.IndexAny(opcode, " \t"); at >= 0 {
		opcode, operands = opcode[:at], strings.TrimSpace(opcode[at:])
	}
	if err := d.instruction(&in, opcode, split(operands)); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	d.k.code = append(d.k.code, in)
	return nil
}

// split cuts operands at commas outside of braces and brackets.
func split(s string) []string {
	var parts []string
	depth, from := 0, 0
	for i, c := range s {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	if s = strings.TrimSpace(s[from:]); s != "" {
		parts = append(parts, s)
	}
	return parts
}

// numbered returns the index of a register by its prefix and number.
func numbered(name string, prefixes map[string]int32) (int32, bool) {
	prefix := strings.TrimRight(name, "0123456789")
	base, ok := prefixes[prefix]
	n, err := strconv.Atoi(name[len(prefix):])
	return base + int32(n), ok && err == nil
}

func (d *decoder) predicate(name string) (int32, error) {
	p, ok := numbered(name, d.predicates)
	if !ok {
		return 0, fmt.Errorf("%s is not a predicate", name)
	}
	return p, nil
}

// operand returns the index of a value: a register, a constant, a symbol's address or a special
// register.
func (d *decoder) operand(s string) (int32, error) {
	if strings.HasPrefix(s, "%") {
		if r, ok := numbered(s, d.prefixes); ok {
			return r, nil
		}
		return d.special(s)
	}
	if at, ok := d.address(s); ok {
		return d.constant(uint64(at)), nil
	}
	v, err := immediate(s)
	return d.constant(v), err
}

// address returns the offset of a shared variable. A variable declared outside of kernels gets an
// offset in each kernel that names it. Dynamic memory follows all other variables.
func (d *decoder) address(name string) (int, bool) {
	if at, ok := d.k.shared[name]; ok {
		return at, true
	}
	declaration, ok := d.outer[name]
	if !ok {
		return 0, false
	}
	if declaration == nil {
		d.dynamic = true
		return roundUp(d.k.SharedBytes, 16), true
	}
	if err := d.sharedVariable(declaration); err != nil {
		return 0, false
	}
	return d.k.shared[name], true
}

func (d *decoder) constant(v uint64) int32 {
	if r, ok := d.constants[v]; ok {
		return r
	}
	r := int32(d.k.regs)
	d.k.regs++
	d.constants[v] = r
	d.k.consts = append(d.k.consts, constant{r, v})
	return r
}

func (d *decoder) special(name string) (int32, error) {
	if r, ok := d.specials[name]; ok {
		return r, nil
	}
	value, ok := specials[name]
	if !ok {
		return 0, fmt.Errorf("unknown register %s", name)
	}
	r := int32(d.k.regs)
	d.k.regs++
	d.specials[name] = r
	d.k.special = append(d.k.special, specialRegister{r, value})
	return r, nil
}

// immediate reads a number: decimal, 0x…, 0f and the bits of an f32, 0d of an f64.
func immediate(s string) (uint64, error) {
	if len(s) == 10 && strings.HasPrefix(s, "0f") {
		return strconv.ParseUint(s[2:], 16, 32)
	}
	if len(s) == 18 && strings.HasPrefix(s, "0d") {
		return strconv.ParseUint(s[2:], 16, 64)
	}
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return uint64(v), nil
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return math.MaxUint64, fmt.Errorf("unknown operand %s", s)
	}
	return v, nil
}

// list reads {a,b,c}, or a single operand.
func (d *decoder) list(s string) ([]int32, error) {
	var places []int32
	for _, name := range split(strings.Trim(s, "{}")) {
		r, err := d.operand(name)
		if err != nil {
			return nil, err
		}
		places = append(places, r)
	}
	return places, nil
}

// memory reads [register+offset] or [symbol+offset].
func (d *decoder) memory(s string) (reg int32, offset int64, err error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if len(inner) != len(s)-2 {
		return 0, 0, fmt.Errorf("%s is not an address", s)
	}
	if at := strings.LastIndexAny(inner, "+"); at > 0 {
		offset, err = strconv.ParseInt(inner[at+1:], 0, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("bad offset in %s", s)
		}
		inner = inner[:at]
	}
	reg, err = d.operand(strings.TrimSpace(inner))
	return reg, offset, err
}

// finish resolves the labels.
func (d *decoder) finish() error {
	for i := range d.k.code {
		in := &d.k.code[i]
		if in.kind != branch {
			continue
		}
		target, ok := d.labels[d.jumps[i]]
		if !ok || target >= len(d.k.code) {
			return fmt.Errorf("%s: no such label", in.text)
		}
		in.target = int32(target)
	}
	n := len(d.k.code)
	if n == 0 || d.k.code[n-1].pred >= 0 || d.k.code[n-1].kind != exit && d.k.code[n-1].kind != branch {
		return fmt.Errorf("kernel %s runs off its end", d.k.Name)
	}
	return nil
}
