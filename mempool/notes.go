package mempool

// MaxNoteBytes bounds a note.
const MaxNoteBytes = 16 << 20

// Notes is implemented by stores that keep small named values beside their extents, such as the tokens of a parked session. Notes outlive
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
