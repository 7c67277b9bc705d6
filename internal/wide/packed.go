package wide

// Packed is a list of words that are usually consecutive, such as 7, 8, 9. A Packed of consecutive
// words holds the first word and the count, and no other memory. Any other Packed is a [Vec]. Like a
// Vec it has 16 bytes and one owner. The zero Packed is empty.
type Packed[T Word] struct {
	// While the words are consecutive, v.data is nil, v.cap is the first word, and only v.len
	// has its usual meaning.
	v Vec[T]
}

// PackedOf returns a Packed with a copy of s. It panics if s has more than math.MaxInt32 words.
func PackedOf[T Word](s []T) Packed[T] {
	if len(s) == 0 {
		return Packed[T]{}
	}
	if !consecutive(s) {
		return Packed[T]{VecOf(s)}
	}
	fit(len(s))
	return Packed[T]{Vec[T]{len: int32(len(s)), cap: int32(s[0])}}
}

func consecutive[T Word](s []T) bool {
	first := s[0]
	if s[len(s)-1]-first != T(len(s)-1) { // rejects most other lists at once
		return false
	}
	for i, x := range s {
		if x != first+T(i) {
			return false
		}
	}
	return true
}

// packed reports whether the words are consecutive, so that p has no array.
func (p *Packed[T]) packed() bool { return p.v.data == nil }

// Len returns the number of words.
func (p *Packed[T]) Len() int { return int(p.v.len) }

// At returns word i, 0 <= i < Len.
func (p *Packed[T]) At(i int) T {
	if p.packed() {
		return T(p.v.cap) + T(i)
	}
	return p.v.Slice()[i]
}

// CopyTo copies words [lo, Len) to dst, as many as dst has room for, 0 <= lo <= Len.
func (p *Packed[T]) CopyTo(dst []T, lo int) {
	if !p.packed() {
		copy(dst, p.v.Slice()[lo:])
		return
	}
	countUp(dst[:min(len(dst), p.Len()-lo)], T(p.v.cap)+T(lo))
}

// countUp fills dst with first, first+1 and so on, eight at a time; one at a time takes twice as long.
func countUp[T Word](dst []T, first T) {
	for len(dst) >= 8 {
		d := (*[8]T)(dst)
		d[0], d[1], d[2], d[3] = first, first+1, first+2, first+3
		d[4], d[5], d[6], d[7] = first+4, first+5, first+6, first+7
		dst, first = dst[8:], first+8
	}
	for i := range dst {
		dst[i] = first + T(i)
	}
}

// AppendTo appends words [lo, Len) to dst and returns it.
func (p *Packed[T]) AppendTo(dst []T, lo int) []T {
	if !p.packed() {
		return append(dst, p.v.Slice()[lo:]...)
	}
	for i := lo; i < p.Len(); i++ {
		dst = append(dst, T(p.v.cap)+T(i))
	}
	return dst
}

// Slice returns a copy of the words.
func (p *Packed[T]) Slice() []T { return p.AppendTo(make([]T, 0, p.Len()), 0) }

// CloneRange returns a Packed with a copy of words [lo, hi), 0 <= lo <= hi <= Len.
func (p *Packed[T]) CloneRange(lo, hi int) Packed[T] {
	switch {
	case lo == hi:
		return Packed[T]{}
	case !p.packed():
		return PackedOf(p.v.Slice()[lo:hi])
	}
	return Packed[T]{Vec[T]{len: int32(hi - lo), cap: p.v.cap + int32(lo)}}
}

// Truncate keeps the first n words, 0 <= n <= Len.
func (p *Packed[T]) Truncate(n int) {
	switch {
	case n == 0:
		*p = Packed[T]{}
	case p.packed():
		p.v.len = int32(n)
	default:
		p.v.Truncate(n)
	}
}

// Same reports whether s equals words [lo, lo+len(s)) of p. lo+len(s) must be at most Len.
func (p *Packed[T]) Same(s []T, lo int) bool {
	if !p.packed() {
		return CommonPrefix(p.v.Slice()[lo:], s) == len(s)
	}
	for i, x := range s {
		if x != T(p.v.cap)+T(lo+i) {
			return false
		}
	}
	return true
}
