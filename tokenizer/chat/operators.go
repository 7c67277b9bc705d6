package chat

import (
	"math"
	"math/bits"
	"strings"
)

// arithmetic returns left op right for Python's operators, with integers of 64 bits. It fails for
// types that op does not take, and for integers that need more bits.
func (r *run) arithmetic(op string, left, right any) any {
	switch l := left.(type) {
	case string:
		switch {
		case op == "%":
			return r.percent(l, right)
		case op == "+":
			if t, ok := right.(string); ok {
				r.room(len(l), len(t))
				r.spendText(len(l))
				return l + t
			}
		case op == "*" && isInt(right):
			n := max(asInt(op, right), 0)
			r.room(0, product(len(l), n))
			return strings.Repeat(l, int(n))
		}
	case *list:
		if t, ok := right.(*list); ok && op == "+" && l.tuple == t.tuple {
			r.spend(len(l.items) + len(t.items))
			return &list{tuple: l.tuple, items: append(append([]any(nil), l.items...), t.items...)}
		}
		if op == "*" && isInt(right) {
			return r.repeated(l, max(asInt(op, right), 0))
		}
	}
	if isInt(left) && isInt(right) {
		return integers(op, asInt(op, left), asInt(op, right))
	}
	if isNumber(left) && isNumber(right) {
		return floats(op, asFloat(left), asFloat(right))
	}
	if op == "*" && isInt(left) {
		switch right.(type) {
		case string, *list:
			return r.arithmetic(op, right, left)
		}
	}
	fail("%s of %s and %s", op, described(left), described(right))
	return nil
}

func (r *run) repeated(l *list, n int64) any {
	size := product(len(l.items), n)
	r.spend(size)
	out := &list{tuple: l.tuple, items: make([]any, 0, size)}
	for range min(n, int64(size)) {
		out.items = append(out.items, l.items...)
	}
	return out
}

// product returns n * k. If that is too large, it returns a negative number, for which spend and
// spendText fail.
func product(n int, k int64) int {
	if n > 0 && k > math.MaxInt32*16/int64(n) {
		return -1
	}
	return n * int(k)
}

func integers(op string, a, b int64) any {
	switch op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return c
		}
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return c
		}
	case "*":
		if c, ok := multiply(a, b); ok {
			return c
		}
	case "**":
		return power(a, b)
	case "/", "//", "%":
		if b == 0 {
			fail("%s by zero", op)
		}
		switch {
		case op == "/":
			return float64(a) / float64(b)
		case a == math.MinInt64 && b == -1:
		case op == "//":
			q := a / b
			if a%b != 0 && (a < 0) != (b < 0) {
				q--
			}
			return q
		default:
			m := a % b
			if m != 0 && (m < 0) != (b < 0) {
				m += b
			}
			return m
		}
	}
	fail("%d %s %d needs more than 64 bits", a, op, b)
	return nil
}

func power(a, b int64) any {
	if b < 0 {
		if a == 0 {
			fail("0 to a negative power")
		}
		return math.Pow(float64(a), float64(b))
	}
	out, ok := int64(1), true
	for range min(b, 64) {
		if out, ok = multiply(out, a); !ok {
			fail("%d ** %d needs more than 64 bits", a, b)
		}
	}
	if b > 64 && a != 0 && a != 1 { // of the other bases only -1 can get here
		if b%2 != 0 {
			return int64(-1)
		}
		return int64(1)
	}
	return out
}

func multiply(a, b int64) (int64, bool) {
	abs := func(n int64) uint64 {
		if n < 0 {
			return -uint64(n)
		}
		return uint64(n)
	}
	hi, lo := bits.Mul64(abs(a), abs(b))
	return a * b, hi == 0 && lo <= math.MaxInt64
}

func floats(op string, a, b float64) any {
	if b == 0 && (op == "/" || op == "//" || op == "%") {
		fail("%s by zero", op)
	}
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return float64(a * b)
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	case "%":
		m := math.Mod(a, b)
		if m != 0 && (m < 0) != (b < 0) {
			m += b
		}
		return m
	}
	return math.Pow(a, b)
}

// compare returns left op right.
func (r *run) compare(op string, left, right any) bool {
	switch op {
	case "==":
		return r.equal(left, right, 0)
	case "!=":
		return !r.equal(left, right, 0)
	case "in":
		return r.contains(right, left)
	case "not in":
		return !r.contains(right, left)
	}
	c := r.order(op, left, right, 0)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// order returns a negative number, 0 or a positive number if left is less than, equal to or
// greater than right. It fails for types that Python does not order. op is the operator for that
// error, depth the nesting of left and right in the values that are compared.
func (r *run) order(op string, left, right any, depth int) int {
	r.deep(depth)
	if isInt(left) && isInt(right) {
		return sign(asInt(op, left) < asInt(op, right), asInt(op, left) > asInt(op, right))
	}
	if isNumber(left) && isNumber(right) {
		return sign(asFloat(left) < asFloat(right), asFloat(left) > asFloat(right))
	}
	switch l := left.(type) {
	case string:
		if t, ok := right.(string); ok {
			r.spendText(min(len(l), len(t)))
			return strings.Compare(l, t) // bytes of UTF-8 have the order of code points
		}
	case *list:
		t, ok := right.(*list)
		if !ok || l.tuple != t.tuple {
			break
		}
		for i := range min(len(l.items), len(t.items)) {
			if !r.equal(l.items[i], t.items[i], depth+1) {
				return r.order(op, l.items[i], t.items[i], depth+1)
			}
		}
		return len(l.items) - len(t.items)
	}
	fail("%s between %s and %s", op, described(left), described(right))
	return 0
}

func sign(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}

// contains implements the expression "v in holder". It fails if holder is of a type that has no
// items.
func (r *run) contains(holder, v any) bool {
	switch h := holder.(type) {
	case string:
		r.spendText(len(h))
		return strings.Contains(h, asString("in", v))
	case *dict:
		if !hashable(v) {
			fail("%s can't be a key", described(v))
		}
		r.spendKey(v)
		_, ok := h.get(v)
		return ok
	case *list:
		for _, item := range h.items {
			if r.equal(item, v, 0) {
				return true
			}
		}
		return false
	case undefined:
		return false
	}
	fail("%s holds nothing", described(holder))
	return false
}

// equal implements Python's ==. depth is the nesting of left and right in the values that are
// compared.
func (r *run) equal(left, right any, depth int) bool {
	r.deep(depth)
	switch l := left.(type) {
	case *list:
		t, ok := right.(*list)
		if !ok || l.tuple != t.tuple || len(l.items) != len(t.items) {
			return false
		}
		for i := range l.items {
			if !r.equal(l.items[i], t.items[i], depth+1) {
				return false
			}
		}
		return true
	case *dict:
		t, ok := right.(*dict)
		if !ok || len(l.keys) != len(t.keys) {
			return false
		}
		for i, key := range l.keys {
			other, ok := t.get(key)
			if !ok || !r.equal(l.values[i], other, depth+1) {
				return false
			}
		}
		return true
	case string:
		t, ok := right.(string)
		if ok && len(l) == len(t) {
			r.spendText(len(l))
		}
		return ok && l == t
	case undefined:
		_, ok := right.(undefined)
		return ok
	case function, method:
		return false
	}
	if isInt(left) && isInt(right) {
		return asInt("==", left) == asInt("==", right)
	}
	if isNumber(left) && isNumber(right) {
		return asFloat(left) == asFloat(right)
	}
	switch right.(type) {
	case function, method:
		return false
	}
	return left == right
}

func isNumber(v any) bool {
	_, float := v.(float64)
	return float || isInt(v)
}

func isInt(v any) bool {
	switch v.(type) {
	case int64, bool:
		return true
	}
	return false
}

func asFloat(v any) float64 {
	if f, ok := v.(float64); ok {
		return f
	}
	return float64(asInt("a number", v))
}

func (r *run) deep(depth int) {
	r.spend(1)
	if depth > maxDepth {
		fail("values nested over %d deep", maxDepth)
	}
}
