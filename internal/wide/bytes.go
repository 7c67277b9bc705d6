package wide

import "unsafe"

// Bytes returns the memory of s as bytes, [wordBytes] for each word, for hashing or comparing within
// this process. The result is a view: it has no spare capacity, is valid as long as s, and shows later
// writes to s. The byte order is the machine's, so nothing derived from the bytes may leave the
// process.
func Bytes[T Word](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), wordBytes*len(s))
}
