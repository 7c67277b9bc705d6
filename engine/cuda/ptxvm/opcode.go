package ptxvm

import (
	"errors"
	"fmt"
	"strings"
)

var errUnknown = errors.New("unknown instruction")

// form describes the instructions of one form. operands has a word for each operand, which names
// its place in instr:
//
//	d a b c  a value or the register of the result
//	D A B C  a predicate
//	l        registers, appended to more
//	m        an address, in a and imm
//	to from  the addresses of an asynchronous copy: in d and imm, and in a and target
//	param    a parameter's address, in imm
//	#        a number, in imm
//	_        an operand without effect
//
// Any other word is the operand itself.
type form struct {
	do        func(w *warp, in *instr, mask uint32)
	operands  string
	registers int // in more
	kind      kind
}

// forms has the instructions that arith.go lacks, by opcode.
var forms = map[string]form{
	"ret":      {nil, "", 0, exit},
	"bar.sync": {nil, "0", 0, barrier},
	"bfi.b32":  {runInsert, "d a b c l", 1, plain},
	"lop3.b32": {runLogic, "d a b c #", 0, plain},

	// Predicates are masks of lanes.
	"mov.pred": {func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a], mask) }, "D A", 0, plain},
	"not.pred": {func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, ^w.p[in.a], mask) }, "D A", 0, plain},
	"and.pred": {func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a]&w.p[in.b], mask) }, "D A B", 0, plain},
	"or.pred":  {func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a]|w.p[in.b], mask) }, "D A B", 0, plain},
	"xor.pred": {func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a]^w.p[in.b], mask) }, "D A B", 0, plain},

	"cp.async.commit_group": {runCommit, "", 0, plain},
	"cp.async.wait_group":   {runWait, "#", 0, plain},
	// 16 bytes. The source may have fewer; the rest becomes zero.
	"cp.async.cg.shared.global": {runCopyAsync, "to from 16 b", 0, plain},

	// All lanes of a warp run these together.
	"bar.warp.sync":                                       {runWarpSync, "a", 0, collective},
	"shfl.sync.bfly.b32":                                  {runShuffle, "d a b _ c", 0, collective},
	"vote.sync.ballot.b32":                                {runBallot, "d A c", 0, collective},
	"ldmatrix.sync.aligned.m8n8.x2.shared.b16":            {runLoadMatrix, "l m", 2, collective},
	"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16":      {runLoadTransposed, "l m", 2, collective},
	"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": {runMMA, "l l l l", 14, collective},
}

// accesses has loads, stores and atomic operations, by name and state space.
var accesses = map[string]form{
	"ld.param":    {runLoadParam, "l param", 0, plain},
	"ld.global":   {runLoadGlobal, "l m", 0, plain},
	"ld.shared":   {runLoadShared, "l m", 0, plain},
	"st.global":   {runStoreGlobal, "m l", 0, plain},
	"st.shared":   {runStoreShared, "m l", 0, plain},
	"atom.global": {runAtomicGlobal, "d m b", 0, plain},
	"atom.shared": {runAtomicShared, "d m b", 0, plain},
}

// vectors has the numbers of elements of loads and stores.
var vectors = map[string]int{"v2": 2, "v4": 4}

var atomics = map[string]func(a, b uint64) uint64{"add.u32": sum, "add.u64": sum, "or.b32": either}

func sum(a, b uint64) uint64    { return a + b }
func either(a, b uint64) uint64 { return a | b }

// instruction sets the fields of in from opcode and operands.
func (d *decoder) instruction(in *instr, opcode string, args []string) error {
	base, rest, _ := strings.Cut(opcode, ".")
	f, ok := forms[opcode]
	in.f1, in.f2, in.f3 = unaryOps[opcode], binaryOps[opcode], ternaryOps[opcode]
	switch {
	case opcode == "mov.pred" && len(args) == 2 && !strings.HasPrefix(args[1], "%"):
		f = form{runSetPredicate, "D #", 0, plain}
	case opcode == "mov.b64" && len(args) == 2 && strings.HasPrefix(args[0], "{"):
		f = form{runHalves, "l a", 2, plain}
	case opcode == "mov.b64" && len(args) == 2 && strings.HasPrefix(args[1], "{"):
		f = form{runJoin, "d l", 2, plain}
	case ok:
	case in.f1 != nil:
		f = form{runUnary, "d a", 0, plain}
	case in.f2 != nil:
		f = form{runBinary, "d a b", 0, plain}
	case in.f3 != nil:
		f = form{runTernary, "d a b c", 0, plain}
	case base == "setp" && compares[rest] != nil:
		in.cmp, f = compares[rest], form{runCompare, "D a b", 0, plain}
	case base == "selp" && sizes[rest] >= 4:
		f = form{runSelect, "d a b C", 0, plain}
	case base == "bra" && len(args) == 1:
		in.kind = branch
		d.jumps[len(d.k.code)] = args[0]
		return nil
	default:
		return d.access(in, opcode, args)
	}
	if do := fast[opcode]; do != nil && f.registers == 0 {
		f.do = do
	}
	if base == "shfl" && len(args) > 0 {
		args[0], _, _ = strings.Cut(args[0], "|") // with xor below 32 each lane has a source
	}
	return d.apply(in, f, args)
}

// access decodes a load, a store or an atomic operation, such as ld.global.v4.u32.
func (d *decoder) access(in *instr, opcode string, args []string) error {
	base, rest, _ := strings.Cut(opcode, ".")
	space, kind, _ := strings.Cut(rest, ".")
	f, ok := accesses[base+"."+space]
	if base == "atom" {
		in.f2 = atomics[kind]
		_, kind, _ = strings.Cut(kind, ".")
		ok = ok && in.f2 != nil
	} else if f.registers = 1; strings.Contains(kind, ".") {
		vector, element, _ := strings.Cut(kind, ".")
		f.registers, kind = vectors[vector], element
		ok = ok && f.registers > 0
	}
	if !ok || sizes[kind] == 0 {
		return errUnknown
	}
	in.size, in.signed = uint8(sizes[kind]), kind[0] == 's'
	return d.apply(in, f, args)
}

// apply sets the fields of in to the operands, as f says.
func (d *decoder) apply(in *instr, f form, args []string) error {
	in.do, in.kind = f.do, f.kind
	n := 0
	for name := range strings.FieldsSeq(f.operands) {
		if n < len(args) {
			if err := d.place(in, name, args[n]); err != nil {
				return err
			}
		}
		n++
	}
	if n != len(args) {
		return fmt.Errorf("%d operands, want %d", len(args), n)
	}
	if len(in.more) != f.registers {
		return fmt.Errorf("%d registers, want %d", len(in.more), f.registers)
	}
	return nil
}

// place reads operand s into the place of that name in in; see form.
func (d *decoder) place(in *instr, name, s string) (err error) {
	var v uint64
	var offset int64
	var registers []int32
	switch name {
	case "d":
		in.d, err = d.operand(s)
	case "a":
		in.a, err = d.operand(s)
	case "b":
		in.b, err = d.operand(s)
	case "c":
		in.c, err = d.operand(s)
	case "D":
		in.d, err = d.predicate(s)
	case "A":
		in.a, err = d.predicate(s)
	case "B":
		in.b, err = d.predicate(s)
	case "C":
		in.c, err = d.predicate(s)
	case "l":
		registers, err = d.list(s)
		in.more = append(in.more, registers...)
	case "m":
		in.a, in.imm, err = d.memory(s)
	case "to":
		in.d, in.imm, err = d.memory(s)
	case "from":
		in.a, offset, err = d.memory(s)
		in.target = int32(offset)
	case "param":
		at, ok := d.k.params[strings.Trim(s, "[]")]
		if in.imm = int64(at); !ok {
			err = fmt.Errorf("unknown parameter %s", s)
		}
	case "#":
		v, err = immediate(s)
		in.imm = int64(v)
	case "_", s:
	default:
		err = errUnknown
	}
	return err
}
