package wire

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// ErrMalformed is returned, wrapped, for bytes that are not an event batch, or exceed the
// limits.
var ErrMalformed = errors.New("wire: malformed batch")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// reader decodes msgpack. After its first error it behaves as if at the end of the input.
type reader struct {
	buf []byte
	err error
}

// fail records the first error and skips the rest of the input.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = malformed(format, args...)
	}
	r.buf = nil
}

// value reads one value with a function of package msgp. An error calls it what.
func value[T any](r *reader, what string, read func([]byte) (T, []byte, error)) T {
	v, rest, err := read(r.buf)
	if err != nil {
		r.fail("%s: %v", what, err)
		return *new(T)
	}
	r.buf = rest
	return v
}

// at reports whether the next value has type t.
func (r *reader) at(t msgp.Type) bool { return msgp.NextType(r.buf) == t }

// nil consumes a nil if it is next, and reports whether it was.
func (r *reader) nil() bool {
	if !msgp.IsNil(r.buf) {
		return false
	}
	r.buf = r.buf[1:]
	return true
}

// integer reads an integer of any type, which an error calls what. v has its 64 bits in two's
// complement.
func (r *reader) integer(what string) (v uint64, negative bool) {
	if r.at(msgp.IntType) {
		s := value(r, what, msgp.ReadInt64Bytes)
		return uint64(s), s < 0
	}
	return value(r, what, msgp.ReadUint64Bytes), false
}

// number reads a non-negative integer. One above most is an error, which calls it what.
func (r *reader) number(what string, most uint64) uint64 {
	v := value(r, what, msgp.ReadUint64Bytes)
	if v > most {
		r.fail("%s %d, at most %d", what, v, most)
		return 0
	}
	return v
}

// float reads a float, or an integer as one: some serialisers write whole seconds as integers.
func (r *reader) float(what string) float64 {
	if r.at(msgp.Float64Type) || r.at(msgp.Float32Type) {
		return value(r, what, msgp.ReadFloat64Bytes)
	}
	v, negative := r.integer(what)
	if negative {
		return float64(int64(v))
	}
	return float64(v)
}

// array reads the head of an array and returns its number of elements. An error calls it what.
func (r *reader) array(what string) int { return int(value(r, what, msgp.ReadArrayHeaderBytes)) }

// mapping reads the head of a map and returns its number of pairs.
func (r *reader) mapping() int { return int(value(r, "map", msgp.ReadMapHeaderBytes)) }

// text reads a string. The result is a part of the input; without an error it is not nil. A
// string of more than most bytes is an error, which calls it what.
func (r *reader) text(what string, most int) []byte {
	return r.short(value(r, what, msgp.ReadStringZC), what, most)
}

// bin reads a byte string. The result is a part of the input. One of more than most bytes is an
// error, which calls it what.
func (r *reader) bin(what string, most int) []byte {
	return r.short(value(r, what, msgp.ReadBytesZC), what, most)
}

// short returns b, or fails if it has more than most bytes.
func (r *reader) short(b []byte, what string, most int) []byte {
	if len(b) > most {
		r.fail("%s: %d bytes, at most %d", what, len(b), most)
		return nil
	}
	return b
}

// skip skips one value of any type, and returns its bytes.
func (r *reader) skip() []byte {
	rest, err := msgp.Skip(r.buf)
	if err != nil {
		r.fail("%v", err)
		return nil
	}
	skipped := len(r.buf) - len(rest)
	raw := r.buf[:skipped:skipped]
	r.buf = rest
	return raw
}
