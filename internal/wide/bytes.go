package wide

import "unsafe"

// Bytes returns the memory of s as bytes, [wordBytes] for each word, for hashing or comparing within
// this process. It is a view: it has no spare capacity, is valid as long as s, and shows later
// writes to s. The byte order is the machine's, so nothing derived from the bytes may leave the
// process.
func Bytes[T Word](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), wordBytes*len(s))
}

// As returns s under another type of the same underlying numbers, without a copy. It is a view like
// that of [Bytes].
func As[To, From ~uint64](s []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}
