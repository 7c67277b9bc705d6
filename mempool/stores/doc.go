// Package stores opens the stores of the tiers below the device: host memory, a disk, a shared directory. It owns nothing
// afterwards: a node moves KV between them with package mempool/carrier. Its functions may be called from any goroutine.
//
//	cfg := stores.Config{HostBytes: 4 << 30, Disk: dir, DiskBytes: 1 << 40}
//	node, err := local.Open(model, local.Options{Node: coppice.Config{Tiers: coppice.Tiers{Open: cfg.Open}}})
//
// Find reads the directories of disk and shared tiers without opening them as stores: it lists their records, checks
// them, and removes those that are of no use.
//
//	dirs, err := stores.Find("/var/cache/coppice", nil) // or a Sealer, for sealed records
//	for r := range dirs[0].Records(true) { … } // r.Err is set if a record is damaged
package stores
