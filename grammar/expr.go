package grammar

// Op is what an Expr matches.
type Op uint8

// The operations.
const (
	Text   Op = iota // the bytes of Text; none if it is empty
	Runes            // one rune, UTF-8, in one of Runes
	Seq              // Sub, one after the other
	Either           // one of Sub; none of them matches nothing at all
	Repeat           // Sub[0], Min to Max times
	Call             // Rules[Rule]
)

// Expr is a pattern of text. It may be part of several others; it is not changed.
type Expr struct {
	Op       Op
	Text     string
	Runes    []Range
	Sub      []*Expr
	Min, Max int // of Repeat; Max Unlimited for no bound
	Rule     int // of Call
}

// Unlimited is Expr.Max of what may be repeated for ever.
const Unlimited = -1

// Range is the runes from Lo to Hi, both within it. Surrogates in it are no runes.
type Range struct{ Lo, Hi rune }

// Rules is a grammar that is not compiled: what Rules[0] matches from beginning to
// end. Calls may be recursive, but not before a byte was matched.
type Rules []*Expr
