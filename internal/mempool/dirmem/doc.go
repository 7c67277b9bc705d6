// Package dirmem owns one tier of KV in a directory that several processes share, also
// over a network file system. The entries belong to the directory, not to a process: each
// may add, read and, where a read fails, remove them. It never decides what is kept but for
// the quota: the process that holds the lease removes what was used longest ago.
//
// The directory of an identity, named by its fingerprint, has
//
//	identity.json  what the fingerprint stands for
//	keeper         the lease: who keeps the quota, alive while its time of change is
//	tmp/           files that are being written
//	3f/            records whose keys begin with 3f, a file each: <key>.kvx
//
// A record is written to a temporary name, whole, and renamed: no process ever sees a part
// of one. A reader checks header, identity and checksum all the same. A file that another
// process removed is a miss.
//
// Parents are there before children when a child is put, and leave after them by the
// quota. A parent that is lost to damage leaves its children behind: they serve again
// when it is put again, as a key stands for the whole prefix, and are the first to leave.
//
//	store, err := dirmem.Open(dirmem.Config{Dir: dir, Identity: id, Bytes: 100 << 30})
//	defer store.Close()
package dirmem
