// Package recording owns the file of a gateway's recorded decisions: its form is package decisions', its size is bounded, and writing
// it never holds up a request. It chooses nothing and reads nothing back.
//
// Add may be called from any goroutine, and puts a decision into a bounded queue; what has no room there, or can't be written, is
// counted and dropped. One goroutine writes.
//
//	r, err := recording.Open(recording.Config{Path: "decisions.jsonl", MaxBytes: 256 << 20, Head: head, Describe: describe})
//	r.Add(recording.Entry{Decision: d, Hashes: hashes, Ranks: ranks})
//	err = r.Close()
package recording
