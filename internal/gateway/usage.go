package gateway

import "bytes"

// usage finds the number of cached prompt tokens in a passing answer, without parsing JSON.
// Inside a JSON string the quotes around the name would be escaped, so the quoted name with a
// colon is always the field, wherever events or reads are split.
type usage struct {
	carry    [usageCarry]byte // the last bytes that passed
	n        int              // length of carry
	cached   int              // the last value found
	reported bool             // a value was found
}

// usageField precedes the number, which has at most usageDigits digits.
var usageField = []byte(`"cached_tokens":`)

const usageDigits, usageCarry = 10, 32

// pass scans the next bytes b.
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

// scan takes the last complete number in b. A number at the end of b may continue, and is
// scanned again with the next bytes; no answer ends in a number, because it is an object.
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
