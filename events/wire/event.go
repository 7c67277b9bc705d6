package wire

// Kind tells the events apart; on the wire it is the struct's name.
type Kind uint8

// The kinds of event.
const (
	BlockStored Kind = iota
	BlockRemoved
	AllBlocksCleared
)

var kindNames = [...]string{"BlockStored", "BlockRemoved", "AllBlocksCleared"}

func (k Kind) String() string { return kindNames[k] }

// Batch is one message: what one step of an engine changed.
type Batch struct {
	Time    float64 // seconds since the epoch, by the publisher's clock
	Events  []Event
	Rank    uint32 // data-parallel rank, if HasRank
	HasRank bool

	Unknown int  // by Decode: events of a kind that is not known here, skipped
	AsMap   bool // the batch itself is a map; AppendBatch writes what Decode read
	NilRank bool // a rank of nil was written, not left out
}

// Event is one change. Its slices are the decoder's, or the caller's when it is
// to be encoded.
type Event struct {
	Kind   Kind
	Hashes []uint64 // not for AllBlocksCleared

	// Of BlockStored only.
	Parent      uint64 // the block before Hashes[0], if HasParent
	HasParent   bool
	Tokens      []uint32 // len = len(Hashes) * BlockTokens
	BlockTokens int
	LoRAID      int64 // deprecated by LoRA
	HasLoRAID   bool
	LoRA        []byte // nil = absent
	Extra       []byte // msgpack: nil, or an array with one entry per block; see ExtraReader
	SpecKind    []byte // such as full_attention; nil = absent
	Window      int64  // of a sliding window, if HasWindow
	HasWindow   bool

	// Of BlockStored and BlockRemoved.
	Medium   []byte // GPU, CPU, ...; nil = absent
	Group    int32  // KV cache group, if HasGroup
	HasGroup bool

	// How the publisher wrote it, kept so that an event is written as it was read.
	Fields    int    // positions after the tag in the array form; 0 = the current form's
	Signed    bool   // hashes are signed integers (SGLang)
	HashBytes int    // length of each hash given as bytes, 0 = integers
	Raw       []byte // the hashes as bytes: len = len(Hashes) * HashBytes
	RawParent []byte // the parent as bytes, nil = integer or absent
}

// Form chooses among the forms that readers understand.
type Form struct {
	// Arrays writes events as arrays, for readers from before maps (AIBrix
	// v0.7.0). Default: maps, as vLLM since v0.26.0.
	Arrays bool
	// Compact writes hashes in the fewest bytes, as msgspec does. Default: always
	// nine bytes, since llm-d refuses hashes below 2^32 in short form.
	Compact bool
}
