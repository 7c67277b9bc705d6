package grammar

import "github.com/coppice-llm/coppice/internal/runeset"

// Op is the kind of an Expr.
type Op uint8

// The operations.
const (
	Text    Op = iota // the bytes of Text, possibly none
	Runes             // one rune in one of Runes, as UTF-8
	Seq               // all of Sub, one after another
	Either            // one of Sub; if Sub is empty, it matches no text, not even ""
	Repeat            // Sub[0], Min to Max times
	Call              // the texts of Rules[Rule]
	Special           // the bytes of Text; a special token of the vocabulary may stand for its content in them
)

// Expr is a pattern of text. It may be part of several other expressions. This package never
// changes one.
type Expr struct {
	Op       Op
	Text     string
	Runes    []Range
	Sub      []*Expr
	Min, Max int // of Repeat; Max may be Unlimited
	Rule     int // of Call: index into Rules
}

// Unlimited is the Expr.Max of a repeat without an upper bound.
const Unlimited = -1

// Range is the runes from Lo to Hi inclusive: {Lo, Hi rune}. Surrogates within it are ignored.
type Range = runeset.Range

// Rules is a grammar before compilation. The texts of the grammar are those that Rules[0] matches
// as a whole. Rules may call each other recursively, but not left-recursively: a byte must be
// matched before a rule calls itself.
type Rules []*Expr
