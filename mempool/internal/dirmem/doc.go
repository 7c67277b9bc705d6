// Package dirmem owns one tier of KV in a directory that several processes share, also over a
// network file system. Records belong to the directory, not to a process: any process may add
// them, read them and, if their bytes are wrong, remove them. The package enforces the quota and makes no
// other decision about contents: the process with the lease, the keeper, removes the least
// recently used records.
//
// The directory of an identity is named by its fingerprint and contains
//
//	identity.json  the identity of the fingerprint
//	keeper         the lease: the name of the keeper; renewed by its modification time
//	tmp/           files that are being written
//	3f/            records whose names begin with 3f, one file each: <name>.kvx
//
// The name is the record's key, or with a Sealer a keyed hash of it ([record.Format.Names]). Records
// of a secret that the Sealer lacks are left alone, and dropped for the quota by their last use.
//
// A record is written to a temporary file and renamed, so no process ever sees part of one.
// Readers check header, identity and checksum all the same. A file that another process removed
// is a miss.
//
// A record is removed only if its own bytes prove it damaged, in two reads. Any other error may be the
// fault of this process or pass (no free descriptor, a stale handle, EIO): then the record counts as
// missing for a minute in this process only, or until it is put again, which replaces the file.
//
// A child can be put only if its parent is there, and the quota removes children before parents.
// The children of a damaged parent stay in the directory. They can be used again when the parent is
// put again, because a key identifies the whole prefix; until then they are the first to be
// removed.
//
//	store, err := dirmem.Open(dirmem.Config{Dir: dir, Identity: id, Bytes: 100 << 30})
//	defer store.Close()
package dirmem
