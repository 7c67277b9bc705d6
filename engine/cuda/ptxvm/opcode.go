package ptxvm

import (
	"errors"
	"fmt"
	"strings"
)

var errUnknown = errors.New("unknown instruction")

// instruction sets the fields of in from opcode and operands.
func (d *decoder) instruction(in *instr, opcode string, args []string) error {
	err := d.operation(in, opcode, args)
	if f := fast[opcode]; f != nil {
		in.do = f
	}
	return err
}

func (d *decoder) operation(in *instr, opcode string, args []string) error {
	if f := unaryOps[opcode]; f != nil {
		in.f1, in.do = f, runUnary
		return d.values(in, args, 2)
	}
	if f := binaryOps[opcode]; f != nil {
		in.f2, in.do = f, runBinary
		return d.values(in, args, 3)
	}
	if f := ternaryOps[opcode]; f != nil {
		in.f3, in.do = f, runTernary
		return d.values(in, args, 4)
	}
	base, rest, _ := strings.Cut(opcode, ".")
	switch {
	case base == "bra" && len(args) == 1:
		in.kind = branch
		d.jumps[len(d.k.code)] = args[0]
		return nil
	case opcode == "ret":
		in.kind = exit
		return nil
	case opcode == "bar.sync" && len(args) == 1 && args[0] == "0":
		in.kind = barrier
		return nil
	case base == "setp" && len(args) == 3:
		return d.setp(in, rest, args)
	case base == "selp" && len(args) == 4:
		return d.selp(in, rest, args)
	case strings.HasSuffix(opcode, ".pred"):
		return d.logic(in, base, args)
	case opcode == "bfi.b32" && len(args) == 5:
		in.do = runInsert
		return errors.Join(d.values(in, args[:4], 4), d.tail(in, args[4:]))
	case base == "ld" && len(args) == 2:
		return d.load(in, rest, args)
	case base == "st" && len(args) == 2:
		return d.store(in, rest, args)
	case base == "atom" && len(args) == 3:
		return d.atomic(in, rest, args)
	case base == "cp":
		return d.copy(in, opcode, args)
	}
	return d.together(in, opcode, args)
}

// values reads n operands: the register of the result, then the inputs.
func (d *decoder) values(in *instr, args []string, n int) error {
	if len(args) != n {
		return fmt.Errorf("%d operands, want %d", len(args), n)
	}
	var err error
	for i, place := range []*int32{&in.d, &in.a, &in.b, &in.c}[:n] {
		var e error
		*place, e = d.operand(args[i])
		err = errors.Join(err, e)
	}
	return err
}

// tail reads more operands.
func (d *decoder) tail(in *instr, args []string) error {
	for _, a := range args {
		r, err := d.operand(a)
		if err != nil {
			return err
		}
		in.more = append(in.more, r)
	}
	return nil
}

func (d *decoder) setp(in *instr, rest string, args []string) error {
	if in.cmp = compares[rest]; in.cmp == nil {
		return errUnknown
	}
	in.do = runCompare
	var errs [3]error
	in.d, errs[0] = d.predicate(args[0])
	in.a, errs[1] = d.operand(args[1])
	in.b, errs[2] = d.operand(args[2])
	return errors.Join(errs[:]...)
}

func (d *decoder) selp(in *instr, kind string, args []string) error {
	if sizes[kind] < 4 {
		return errUnknown
	}
	in.do = runSelect
	if err := d.values(in, args[:3], 3); err != nil {
		return err
	}
	var err error
	in.c, err = d.predicate(args[3])
	return err
}

// logic has the operations on predicates, which are masks of lanes.
func (d *decoder) logic(in *instr, op string, args []string) error {
	var err error
	if in.d, err = d.predicate(args[0]); err != nil {
		return err
	}
	if op == "mov" && len(args) == 2 && !strings.HasPrefix(args[1], "%") {
		v, err := immediate(args[1])
		in.imm, in.do = int64(v), runSetPredicate
		return err
	}
	if in.a, err = d.predicate(args[1]); err != nil {
		return err
	}
	if len(args) == 3 {
		if in.b, err = d.predicate(args[2]); err != nil {
			return err
		}
	}
	switch fmt.Sprint(op, len(args)) {
	case "mov2":
		in.do = func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a], mask) }
	case "not2":
		in.do = func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, ^w.p[in.a], mask) }
	case "and3":
		in.do = func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a]&w.p[in.b], mask) }
	case "or3":
		in.do = func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a]|w.p[in.b], mask) }
	case "xor3":
		in.do = func(w *warp, in *instr, mask uint32) { w.setPredicate(in.d, w.p[in.a]^w.p[in.b], mask) }
	default:
		return errUnknown
	}
	return nil
}

// access reads a suffix such as "global.v4.u32". It sets the element size in in, and returns the
// state space and the number of elements.
func access(in *instr, rest string) (space string, count int, err error) {
	parts, count := strings.Split(rest, "."), 1
	if len(parts) == 3 {
		switch parts[1] {
		case "v2":
			count = 2
		case "v4":
			count = 4
		default:
			return "", 0, errUnknown
		}
		parts = []string{parts[0], parts[2]}
	}
	if len(parts) != 2 || sizes[parts[1]] == 0 {
		return "", 0, errUnknown
	}
	in.size, in.signed = uint8(sizes[parts[1]]), parts[1][0] == 's'
	return parts[0], count, nil
}

func (d *decoder) load(in *instr, rest string, args []string) error {
	space, count, err := access(in, rest)
	if err != nil {
		return err
	}
	if in.more, err = d.list(args[0]); err != nil || len(in.more) != count {
		return errors.Join(err, fmt.Errorf("%d registers", len(in.more)))
	}
	switch space {
	case "param":
		at, ok := d.k.params[strings.Trim(args[1], "[]")]
		if !ok {
			return fmt.Errorf("unknown parameter %s", args[1])
		}
		in.imm, in.do = int64(at), runLoadParam
		return nil
	case "global":
		in.do = runLoadGlobal
	case "shared":
		in.do = runLoadShared
	default:
		return errUnknown
	}
	in.a, in.imm, err = d.memory(args[1])
	return err
}

func (d *decoder) store(in *instr, rest string, args []string) error {
	space, count, err := access(in, rest)
	if err != nil {
		return err
	}
	switch space {
	case "global":
		in.do = runStoreGlobal
	case "shared":
		in.do = runStoreShared
	default:
		return errUnknown
	}
	if in.more, err = d.list(args[1]); err != nil || len(in.more) != count {
		return errors.Join(err, fmt.Errorf("%d registers", len(in.more)))
	}
	in.a, in.imm, err = d.memory(args[0])
	return err
}

func (d *decoder) atomic(in *instr, rest string, args []string) error {
	space, op, _ := strings.Cut(rest, ".")
	switch op {
	case "add.u32", "add.u64":
		in.f2 = func(a, b uint64) uint64 { return a + b }
	case "or.b32":
		in.f2 = func(a, b uint64) uint64 { return a | b }
	default:
		return errUnknown
	}
	in.size = uint8(sizes[op[strings.Index(op, ".")+1:]])
	switch space {
	case "global":
		in.do = runAtomicGlobal
	case "shared":
		in.do = runAtomicShared
	default:
		return errUnknown
	}
	var errs [3]error
	in.d, errs[0] = d.operand(args[0])
	in.a, in.imm, errs[1] = d.memory(args[1])
	in.b, errs[2] = d.operand(args[2])
	return errors.Join(errs[:]...)
}

// copy decodes cp.async of 16 bytes. The source may have fewer; the rest becomes zero.
func (d *decoder) copy(in *instr, opcode string, args []string) error {
	switch {
	case opcode == "cp.async.commit_group" && len(args) == 0:
		in.do = runCommit
		return nil
	case opcode == "cp.async.wait_group" && len(args) == 1:
		n, err := immediate(args[0])
		in.imm, in.do = int64(n), runWait
		return err
	case opcode == "cp.async.cg.shared.global" && len(args) == 4 && args[2] == "16":
		in.do = runCopyAsync
		var errs [3]error
		in.d, in.imm, errs[0] = d.memory(args[0])
		var offset int64
		in.a, offset, errs[1] = d.memory(args[1])
		in.target = int32(offset)
		in.b, errs[2] = d.operand(args[3])
		return errors.Join(errs[:]...)
	}
	return errUnknown
}

// together decodes the instructions that all lanes of a warp run together.
func (d *decoder) together(in *instr, opcode string, args []string) error {
	in.kind = collective
	switch opcode {
	case "shfl.sync.bfly.b32":
		if len(args) != 5 {
			return errUnknown
		}
		in.do = runShuffle
		value, _, _ := strings.Cut(args[0], "|") // with xor below 32 each lane has a source
		return d.values(in, []string{value, args[1], args[2], args[4]}, 4)
	case "vote.sync.ballot.b32":
		if len(args) != 3 {
			return errUnknown
		}
		in.do = runBallot
		var errs [3]error
		in.d, errs[0] = d.operand(args[0])
		in.a, errs[1] = d.predicate(args[1])
		in.c, errs[2] = d.operand(args[2])
		return errors.Join(errs[:]...)
	case "ldmatrix.sync.aligned.m8n8.x2.shared.b16", "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16":
		in.do, in.negated = runLoadMatrix, strings.Contains(opcode, "trans")
		return d.matrix(in, args)
	case "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32":
		in.do = runMMA
		for _, a := range args {
			l, err := d.list(a)
			if err != nil {
				return err
			}
			in.more = append(in.more, l...)
		}
		if len(in.more) != 14 {
			return fmt.Errorf("%d registers", len(in.more))
		}
		return nil
	}
	return errUnknown
}

func (d *decoder) matrix(in *instr, args []string) error {
	if in.pred >= 0 || len(args) != 2 {
		return errUnknown
	}
	transposed := in.negated
	in.negated, in.signed = false, transposed
	var errs [2]error
	in.more, errs[0] = d.list(args[0])
	in.a, in.imm, errs[1] = d.memory(args[1])
	if len(in.more) != 2 {
		return fmt.Errorf("%d registers", len(in.more))
	}
	return errors.Join(errs[:]...)
}
