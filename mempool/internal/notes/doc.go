// Package notes owns a directory of small named values, a file for each, with which a store implements mempool.Notes. It never
// interprets a value. Files are named by a hash of the name, and sealed if the store's records are. Its methods may be called
// from any goroutine.
//
//	d, err := notes.Open(filepath.Join(dir, "notes"), format, 64<<20, nil)
//	err = d.PutNote("agent", value)
//	value, err = d.Note("agent")
package notes
