// Package inspect looks at the directories of disk and shared tiers without opening them
// as stores: what is in them, whether it is whole, and what may go. It serves people and
// never a scheduler.
//
//	dirs, err := inspect.Find("/var/cache/coppice")
//	for r := range dirs[0].Records(true) { … } // with r.Err where a record is damaged
package inspect
