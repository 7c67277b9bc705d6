package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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

func (r *reader) byte() byte {
	if len(r.buf) == 0 {
		r.fail("it ends too early")
		return 0xc1
	}
	b := r.buf[0]
	r.buf = r.buf[1:]
	return b
}

// take returns the next n bytes of the input. Fewer bytes than n are an error.
func (r *reader) take(n uint64) []byte {
	if uint64(len(r.buf)) < n {
		r.fail("%d bytes announced, %d left", n, len(r.buf))
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

// uint reads a big-endian number of this many bytes: 1, 2, 4 or 8.
func (r *reader) uint(bytes uint64) uint64 {
	b := r.take(bytes)
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// nil consumes a nil if it is next, and reports whether it was.
func (r *reader) nil() bool {
	if len(r.buf) > 0 && r.buf[0] == 0xc0 {
		r.buf = r.buf[1:]
		return true
	}
	return false
}

// integer reads an integer of any type. v has its 64 bits in two's complement.
func (r *reader) integer() (v uint64, negative bool) {
	switch c := r.byte(); {
	case c < 0x80:
		return uint64(c), false
	case c >= 0xe0:
		return uint64(int64(int8(c))), true
	case c >= 0xcc && c <= 0xcf:
		return r.uint(1 << (c - 0xcc)), false
	case c >= 0xd0 && c <= 0xd3:
		bytes := uint64(1) << (c - 0xd0)
		shift := 64 - 8*bytes
		s := int64(r.uint(bytes)<<shift) >> shift
		return uint64(s), s < 0
	default:
		r.fail("type 0x%02x instead of an integer", c)
		return 0, false
	}
}

// number reads a non-negative integer. One above most is an error, which calls it what.
func (r *reader) number(what string, most uint64) uint64 {
	v, negative := r.integer()
	if negative || v > most {
		r.fail("%s %d, at most %d", what, int64(v), most)
		return 0
	}
	return v
}

// signed reads an integer. One that does not fit in an int64 is an error, which calls it what.
func (r *reader) signed(what string) int64 {
	v, negative := r.integer()
	if !negative && v > math.MaxInt64 {
		r.fail("%s %d", what, v)
	}
	return int64(v)
}

// float reads a float, or an integer as one: some serialisers write whole seconds as integers.
func (r *reader) float() float64 {
	if len(r.buf) > 0 {
		switch r.buf[0] {
		case 0xca:
			r.byte()
			return float64(math.Float32frombits(uint32(r.uint(4))))
		case 0xcb:
			r.byte()
			return math.Float64frombits(r.uint(8))
		}
	}
	v, negative := r.integer()
	if negative {
		return float64(int64(v))
	}
	return float64(v)
}

// array reads the head of an array and returns its number of elements. An error calls it what.
func (r *reader) array(what string) int { return r.head(what, "an array", 0x90, 0xdc) }

func isMap(c byte) bool { return c >= 0x80 && c <= 0x8f || c == 0xde || c == 0xdf }

// mapping reads the head of a map and returns its number of pairs.
func (r *reader) mapping() int { return r.head("map", "a map", 0x80, 0xde) }

// head reads the head of an array or a map and returns its length. A length up to 15 is in the
// first byte: short plus the length. The byte wide is followed by a length of 2 bytes, the byte
// wide+1 by one of 4 bytes. Any other first byte is an error, which names what and want.
func (r *reader) head(what, want string, short, wide byte) int {
	switch c := r.byte(); {
	case c&0xf0 == short:
		return int(c & 0x0f)
	case c == wide:
		return int(r.uint(2))
	case c == wide+1:
		return int(r.uint(4))
	default:
		r.fail("%s: type 0x%02x instead of %s", what, c, want)
		return 0
	}
}

// text reads a string. The result is a part of the input; without an error it is not nil. A
// string of more than most bytes is an error, which calls it what.
func (r *reader) text(what string, most uint64) []byte {
	var n uint64
	switch c := r.byte(); {
	case c >= 0xa0 && c <= 0xbf:
		n = uint64(c & 0x1f)
	case c >= 0xd9 && c <= 0xdb:
		n = r.uint(1 << (c - 0xd9))
	default:
		r.fail("%s: type 0x%02x instead of a string", what, c)
		return nil
	}
	if n > most {
		r.fail("%s: %d bytes, at most %d", what, n, most)
		return nil
	}
	return r.take(n)
}

func isBin(c byte) bool { return c >= 0xc4 && c <= 0xc6 }

// bin reads a byte string. The result is a part of the input. One of more than most bytes is an
// error, which calls it what.
func (r *reader) bin(what string, most uint64) []byte {
	c := r.byte()
	if !isBin(c) {
		r.fail("%s: type 0x%02x instead of bytes", what, c)
		return nil
	}
	n := r.uint(1 << (c - 0xc4))
	if n > most {
		r.fail("%s: %d bytes, at most %d", what, n, most)
		return nil
	}
	return r.take(n)
}

// skip skips one value of any type and depth, and returns its bytes. Instead of recursing into
// arrays and maps, it counts the values that are left to skip.
func (r *reader) skip() []byte {
	from := r.buf
	for left := uint64(1); left > 0 && r.err == nil; left-- {
		switch c := r.byte(); {
		case c < 0x80 || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		case c <= 0x8f:
			left += 2 * uint64(c&0x0f)
		case c <= 0x9f:
			left += uint64(c & 0x0f)
		case c <= 0xbf:
			r.take(uint64(c & 0x1f))
		case isBin(c):
			r.take(r.uint(1 << (c - 0xc4)))
		case c >= 0xc7 && c <= 0xc9: // extension: length, type, data
			r.take(r.uint(1<<(c-0xc7)) + 1)
		case c == 0xca:
			r.take(4)
		case c == 0xcb:
			r.take(8)
		case c >= 0xcc && c <= 0xcf:
			r.take(1 << (c - 0xcc))
		case c >= 0xd0 && c <= 0xd3:
			r.take(1 << (c - 0xd0))
		case c >= 0xd4 && c <= 0xd8: // extension of 1 to 16 bytes
			r.take(1 + 1<<(c-0xd4))
		case c >= 0xd9 && c <= 0xdb:
			r.take(r.uint(1 << (c - 0xd9)))
		case c == 0xdc:
			left += r.uint(2)
		case c == 0xdd:
			left += r.uint(4)
		case c == 0xde:
			left += 2 * r.uint(2)
		case c == 0xdf:
			left += 2 * r.uint(4)
		default:
			r.fail("type 0x%02x", c)
		}
	}
	if r.err != nil {
		return nil
	}
	return from[: len(from)-len(r.buf) : len(from)-len(r.buf)]
}

func appendArray(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xdc), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
	}
}

func appendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	switch n := len(s); {
	case n < 32:
		dst = append(dst, 0xa0|byte(n))
	case n <= math.MaxUint8:
		dst = append(dst, 0xd9, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

func appendBin(dst, b []byte) []byte {
	switch n := len(b); {
	case n <= math.MaxUint8:
		dst = append(dst, 0xc4, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xc5), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xc6), uint32(n))
	}
	return append(dst, b...)
}

// appendUint writes an integer in its shortest form: 1, 2, 3, 5 or 9 bytes.
func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(dst, byte(v))
	case v <= math.MaxUint8:
		return append(dst, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return append(dst, 0xcd, byte(v>>8), byte(v))
	case v <= math.MaxUint32:
		return append(dst, 0xce, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	default:
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
	}
}

// appendInt writes a signed integer in its shortest form.
func appendInt(dst []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(dst, uint64(v))
	case v >= -32:
		return append(dst, byte(v))
	case v >= math.MinInt8:
		return append(dst, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(dst, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
	}
}
