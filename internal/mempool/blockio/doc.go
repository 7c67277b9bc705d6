// Package blockio owns how stores read and write files: past the page cache where the
// file system lets them, in the alignment that it asks for, and through it where not. It
// also owns memory for such transfers, and the faults that tests plant. It decides
// nothing: not what is written, nor where.
//
// A File may be used by any number of goroutines at once.
//
//	f, err := blockio.Open(path, os.O_RDWR|os.O_CREATE, nil)
//	buf, err := blockio.Alloc(1 << 20)
//	err = f.WriteAt(buf, 0)
package blockio
