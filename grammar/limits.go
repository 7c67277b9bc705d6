package grammar

import "errors"

// Faults of a grammar. Errors of this package wrap one of them and say where the fault is.
var (
	ErrInvalid     = errors.New("grammar: invalid rules")
	ErrUnsupported = errors.New("grammar: unsupported")
	ErrTooLarge    = errors.New("grammar: too large")
	ErrNothing     = errors.New("grammar: no text matches the rules")
)

// Limits bounds the size of a grammar. Zero fields mean the defaults.
type Limits struct {
	Exprs int // expressions in the rules; default 262,144
	Nodes int // nodes of the automata, plus a sixteenth of their edges; default 131,072
	Bytes int // bytes of the grammar's tables, and as many again while compiling; default 64 MiB
	Memo  int // bytes of cached masks and stacks; default 8 MiB

	unroll int // most states of a repeat that is unrolled; larger repeats count
	beyond int // see beyondWork, its default
	slack  int // nodes of a deterministic automaton beyond 4 for each state of the nfa
}

// WithDefaults returns l with defaults for the fields that are not positive.
func (l Limits) WithDefaults() Limits {
	set := func(v *int, to int) {
		if *v <= 0 {
			*v = to
		}
	}
	set(&l.Exprs, 1<<18)
	set(&l.Nodes, 1<<17)
	set(&l.Bytes, 64<<20)
	set(&l.Memo, 8<<20)
	set(&l.unroll, 64)
	set(&l.beyond, beyondWork)
	if l.slack == 0 {
		l.slack = 256
	}
	return l
}

const (
	// maxStacks bounds the stacks that are followed at once. Rules that need more are too
	// ambiguous to compile. Where the need arises only at run time, surplus stacks are
	// dropped: fewer texts are then allowed than by the rules, never more.
	maxStacks = 256

	// maxPattern bounds the bytes of a regular expression. Its parser can't be interrupted and
	// takes up to 7 µs and 1 KiB of memory per byte: 0.9 s and 128 MiB at the bound.
	maxPattern = 128 << 10

	// maxRepeat bounds Expr.Min and Max, so that counts fit in 32 bits.
	maxRepeat = 1 << 30
)
