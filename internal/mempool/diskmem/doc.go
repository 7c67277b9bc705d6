// Package diskmem owns one tier of KV on a local disk: a directory that no other process
// uses meanwhile, and that a second start finds as the first one left it. It never
// decides what is kept.
//
// The directory of an identity, named by its fingerprint, has
//
//	identity.json  what the fingerprint stands for
//	lock           locked while a store is open
//	slots-0000     room for records of one size each, reserved when it is made
//	index          what is in which slot, while that is exactly so
//
// A slot describes itself: its header has all that [mempool.Format] says of a record, and
// a store that was killed reads the headers. The page of a header is erased before a slot
// is used anew and written after the pages, so a record is there whole or not at all.
// Checksums find what the disk or a crash of the machine made of it. The index is written
// at Flush and at Close, to a temporary name, synced and renamed, after the slots were
// synced; the first change after that removes it. So it never names a record that is not
// whole.
//
// Transfers pass the page cache by (O_DIRECT), where the file system lets them: KV is read
// once and then in another tier, and the cache is the host tier's to be. A bounded number
// of goroutines reads and writes. No io_uring, which container runtimes forbid; no mmap,
// which turns a bad sector into a signal.
//
// Directories of other fingerprints are left alone, and named in Info.
//
//	store, err := diskmem.Open(diskmem.Config{Dir: dir, Identity: id, Bytes: 20 << 30})
//	defer store.Close()
package diskmem
