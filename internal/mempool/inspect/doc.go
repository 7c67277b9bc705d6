// Package inspect reads the directories of disk and shared tiers without opening them as stores:
// it lists their records, checks them, and removes those that are of no use. It is for command
// line tools; no scheduler uses it.
//
//	dirs, err := inspect.Find("/var/cache/coppice", nil) // or a Sealer, for sealed records
//	for r := range dirs[0].Records(true) { … } // r.Err is set if a record is damaged
package inspect
