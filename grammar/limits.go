package grammar

import "errors"

// What is wrong with a grammar; errors wrap one of these and say where.
var (
	ErrInvalid     = errors.New("grammar: invalid rules")
	ErrUnsupported = errors.New("grammar: unsupported")
	ErrTooLarge    = errors.New("grammar: too large")
	ErrNothing     = errors.New("grammar: no text matches the rules")
)

// Limits bound what a grammar may take. Zero fields mean the defaults.
type Limits struct {
	Exprs int // expressions in the rules; default 262,144
	Nodes int // nodes of the automata, with a sixteenth of their edges; default 131,072
	Bytes int // of the compiled grammar's tables, and as many again while it is compiled; default 64 MiB
	Memo  int // bytes of masks and stacks remembered while it is used; default 8 MiB

	unroll int // states that a repeat may have and still be written out, copy after copy; larger ones count
	beyond int // moves below exits before a mask is made by a walk of the whole trie; see explore.go
	slack  int // nodes that determinising may take beyond 4 for each of the nfa's states
}

// WithDefaults is l with defaults in place of what is not positive.
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
	// maxStacks is how many stacks are followed side by side. More make a rule too
	// ambiguous to compile; where they come together at run time only, the surplus
	// is dropped: what is allowed is then less than the rules say, and never more.
	maxStacks = 256

	// maxPattern bounds the text of a regular expression, whose parser can't be stopped: it
	// takes up to 7 µs a byte, and a kilobyte of memory.
	maxPattern = 128 << 10

	// maxRepeat bounds Expr.Min and Max, so that counts fit into 32 bits.
	maxRepeat = 1 << 30
)
