package mempool

// MaxNoteBytes bounds a note.
const MaxNoteBytes = 16 << 20

// Noter is implemented by stores that may keep notes.
type Noter interface {
	// Notes returns nil if the store keeps none.
	Notes() Notes
}

// Notes are small named values beside the extents of a store, such as the tokens of a parked session. They outlive
// the process as extents do. The methods read and write files, and may be called from any goroutine.
type Notes interface {
	// PutNote stores a value under a name, in place of an earlier one. When it returns nil, the value outlives
	// the process and a crash of the machine. Errors: ErrFull for a value above MaxNoteBytes, or if all notes
	// together have more bytes than the store permits; those of the system.
	PutNote(name string, value []byte) error
	// Note returns the value of a name. Errors: ErrMiss; ErrCorrupt for a damaged note, or one of another secret.
	Note(name string) ([]byte, error)
	// DropNote removes a note; nothing happens if there is none.
	DropNote(name string) error
	// EachNote calls yield with each value that can be read, in any order, until yield returns false.
	EachNote(yield func(value []byte) bool) error
}
