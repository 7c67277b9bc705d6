// Package diskmem owns one tier of KV on a local disk: a directory that only one process uses at a
// time, and whose contents survive a restart. It never decides which extents to keep.
//
// The directory of an identity is named by its fingerprint and contains
//
//	identity.json  the identity of the fingerprint
//	lock           locked while a store is open
//	slots-0000     slots for one record each, all of the same size; reserved when created
//	index          the record of each slot; it exists only while it is exact
//
// A slot is self-describing: its header holds a record's description in [record.Format], so after
// a kill the next Open recovers the records from the headers. Before a slot is reused, its header
// is erased; the new header is written after the pages. So a record is either whole or absent.
// Checksums detect damage by the disk or by a crash of the machine.
//
// The index is written at Flush and at Close, after the slots were synced: to a temporary file
// that is synced and renamed. The first change after that removes it, so it never names a record
// that is not whole. It names the files that it was written for; if others are found, Open reads
// the headers. A file that is missing or was cut short lacks only its own slots.
//
// Transfers bypass the page cache (O_DIRECT) where the file system allows it: KV that is read goes
// to another tier and is not read again soon, and caching it in memory is the host tier's work. A
// bounded number of goroutines reads and writes. The package does not use io_uring, which
// container runtimes forbid, nor mmap, which turns a bad sector into a signal.
//
// With a Sealer, records and index are sealed. Slots with records of a secret that the Sealer lacks count
// as free.
//
// Directories of other fingerprints are left alone and listed in Info.
//
//	store, err := diskmem.Open(diskmem.Config{Dir: dir, Identity: id, Bytes: 20 << 30})
//	defer store.Close()
package diskmem
