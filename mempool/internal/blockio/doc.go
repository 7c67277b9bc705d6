// Package blockio owns file access of the stores: direct transfers that bypass the page cache,
// with the alignment that they need, and transfers through the page cache where the file system
// allows no others. What is no regular file is refused without waiting for it, and small files are
// read bounded. It also owns the memory for such transfers and the faults that tests plant.
// It never decides which data to write, or where.
//
// A File may be used by any number of goroutines at once.
//
//	f, err := blockio.Open(path, os.O_RDWR|os.O_CREATE, nil)
//	buf, err := blockio.Alloc(1 << 20)
//	err = f.WriteAt(buf, 0)
package blockio
