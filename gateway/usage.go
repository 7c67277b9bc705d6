package gateway

import "bytes"

// usage finds the number of cached prompt tokens in the bytes of an answer that pass by, without
// parsing JSON. It searches for "cached_tokens": with its quotes. Inside a JSON string these
// quotes would be escaped, so what it finds is always the field, even if it is split between two
// events' bytes or two reads.
type usage struct {
	carry    [usageCarry]byte // the last bytes that passed
	n        int              // length of carry
	cached   int              // the value found last
	reported bool             // a value was found
}

// usageField stands before the number. A number of more than usageDigits digits is ignored.
// usageCarry is more than the length of both together.
var usageField = []byte(`"cached_tokens":`)

const usageDigits, usageCarry = 10, 32

// pass scans the next bytes b of the answer, together with the last bytes before them.
func (u *usage) pass(b []byte) {
	if u.n > 0 { // a field across the boundary
		var both [2 * usageCarry]byte
		n := copy(both[:], u.carry[:u.n])
		n += copy(both[n:], b[:min(len(b), usageCarry)])
		u.scan(both[:n])
	}
	u.scan(b)
	if len(b) >= usageCarry {
		u.n = copy(u.carry[:], b[len(b)-usageCarry:])
		return
	}
	keep := min(u.n, usageCarry-len(b))
	copy(u.carry[:], u.carry[u.n-keep:u.n])
	u.n = keep + copy(u.carry[keep:], b)
}

// scan finds the last field in b and stores its number. A number that reaches the end of b is
// ignored, because it may continue; pass scans it again with the next bytes. No answer ends in a
// number, because it is an object.
func (u *usage) scan(b []byte) {
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
				return // too long for a number of tokens
			}
			value = 10*value + int(c-'0')
			digits++
			continue
		}
		if digits > 0 {
			u.cached, u.reported = value, true
		}
		return
	}
}
