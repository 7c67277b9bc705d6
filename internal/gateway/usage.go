package gateway

import "bytes"

// usage finds in an answer that passes how many tokens of the prompt the worker had cached.
// It reads no JSON: inside a JSON string the name's quotes would have backslashes, so the name
// with a colon is the field, wherever an event or a read ends.
type usage struct {
	carry  [usageCarry]byte // the end of what has passed
	n      int              // bytes of it
	cached int              // the last value
	told   bool
}

// usageField comes before the number, which has at most usageDigits digits.
var usageField = []byte(`"cached_tokens":`)

const usageDigits, usageCarry = 10, 32

// pass looks at what passes next.
func (u *usage) pass(b []byte) {
	if u.n > 0 { // what lies across the border
		var both [2 * usageCarry]byte
		n := copy(both[:], u.carry[:u.n])
		n += copy(both[n:], b[:min(len(b), usageCarry)])
		u.look(both[:n])
	}
	u.look(b)
	if len(b) >= usageCarry {
		u.n = copy(u.carry[:], b[len(b)-usageCarry:])
		return
	}
	keep := min(u.n, usageCarry-len(b))
	copy(u.carry[:], u.carry[u.n-keep:u.n])
	u.n = keep + copy(u.carry[keep:], b)
}

// look takes the last number in b that is whole. A number at the end of b may go on, and is
// seen again with what follows; at the end of an answer none is, as an object ends there.
func (u *usage) look(b []byte) {
	at := bytes.LastIndex(b, usageField)
	if at < 0 {
		return
	}
	b = b[at+len(usageField):]
	value, digits := 0, 0
	for _, c := range b {
		switch {
		case c == ' ' && digits == 0:
			continue
		case c >= '0' && c <= '9':
			if digits == usageDigits {
				return // no number of tokens
			}
			value = 10*value + int(c-'0')
			digits++
			continue
		}
		if digits > 0 {
			u.cached, u.told = value, true
		}
		return
	}
}
