package wide

import "unsafe"

// Bytes is the memory of s as bytes, [wordBytes] for each word, to be hashed or
// compared in this process. It is a view: it has no room to append to, lives as
// long as s, and shows what is written to s. The order of the bytes in a word is
// the machine's, so nothing that is made of them may leave the process.
func Bytes[T Word](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), wordBytes*len(s))
}

// As is s under another type of the same numbers, without a copy: a view as that of
// [Bytes].
func As[To, From ~uint64](s []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}
