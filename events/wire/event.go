package wire

import "slices"

// Kind is the kind of an event; on the wire it is the name of vLLM's struct.
type Kind uint8

// Kinds of events.
const (
	BlockStored Kind = iota
	BlockRemoved
	AllBlocksCleared
)

var kindNames = [...]string{"BlockStored", "BlockRemoved", "AllBlocksCleared"}

func (k Kind) String() string { return kindNames[k] }

// Batch is one message: the cache changes of one step of an engine.
type Batch struct {
	Time    float64 // seconds since the epoch, by the publisher's clock
	Events  []Event
	Rank    uint32 // data-parallel rank, if HasRank
	HasRank bool

	Unknown int // set by Decode: number of skipped events of unknown kind
}

// Event is one change. The slices of a decoded Event belong to the Decoder.
type Event struct {
	Kind   Kind
	Hashes []uint64 // not for AllBlocksCleared

	// Only in BlockStored.
	Parent      uint64 // hash of the block before Hashes[0], if HasParent
	HasParent   bool
	Tokens      []uint32 // len = len(Hashes) * BlockTokens
	BlockTokens int
	LoRAID      int64 // number of the adapter, in older publishers; LoRA has replaced it; never written
	HasLoRAID   bool
	LoRA        []byte // nil: absent
	Extra       []byte // msgpack: nil, or an array with one entry per block; see ExtraReader
	SpecKind    []byte // such as full_attention; nil: absent; never written
	Salt        []byte // SGLang's cache_salt, which holds for all blocks; nil: absent; never written

	// In BlockStored and BlockRemoved.
	Medium   []byte // GPU, CPU, ...; nil: absent
	Group    int32  // KV cache group, if HasGroup; never written
	HasGroup bool
	Locality []byte // of the medium, in vLLM: LOCAL or REMOTE; nil: absent; never written
}

// NamesOnly reports whether a BlockStored only names its blocks, without their tokens: a copy of blocks whose content
// an earlier event told. vLLM's offloading connector writes such events unless its option self_describing_kv_events is
// set.
func (e *Event) NamesOnly() bool {
	return e.Kind == BlockStored && len(e.Tokens) == 0 && len(e.Hashes) > 0
}

// Form chooses among the encodings that readers understand.
type Form struct {
	// Arrays writes events as arrays, for readers that do not know the map form (AIBrix v0.7.0).
	// Default: maps, as vLLM since v0.26.0.
	Arrays bool
}

// kindOf returns the kind with this tag. The second result is false for an unknown tag.
func kindOf(tag []byte) (Kind, bool) {
	k := slices.IndexFunc(kindNames[:], func(name string) bool { return name == string(tag) })
	return Kind(max(k, 0)), k >= 0
}

// field is a field of an event.
type field uint8

const (
	fieldHashes field = iota
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRA
	fieldExtra
	fieldGroup
	fieldKind
	fieldWindow
	fieldLocality
	fieldSalt
)

var fieldNames = [...]string{
	fieldHashes: "block_hashes", fieldParent: "parent_block_hash", fieldTokens: "token_ids",
	fieldBlockSize: "block_size", fieldLoRAID: "lora_id", fieldMedium: "medium", fieldLoRA: "lora_name",
	fieldExtra: "extra_keys", fieldGroup: "group_idx", fieldKind: "kv_cache_spec_kind",
	fieldWindow: "kv_cache_spec_sliding_window", fieldLocality: "locality", fieldSalt: "cache_salt",
}

// layout lists the fields of a kind of event, in the order of the array form. A reader needs at
// least the first fields, as many as least says. The fields of written are always written, even as
// nil; after them in a BlockStored come its extra keys, if there are any. (msgspec itself writes all
// positions of an array; readers accept both.) The array form has only the first positions, the map
// form all fields.
type layout struct {
	fields    []field
	positions int
	least     int
	written   []field
}

// stored has vLLM's order, as of tests/distributed/test_kv_events.py in its repository. In SGLang's array form the
// position of fieldLoRA is a map, see readMetadata; its map form has cache_salt beside the other fields.
var stored = [...]field{fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium, fieldLoRA, fieldExtra, fieldGroup, fieldKind, fieldWindow, fieldLocality, fieldSalt}

var layouts = [...]layout{
	BlockStored:      {stored[:], 12, 4, stored[:7]},
	BlockRemoved:     {[]field{fieldHashes, fieldMedium, fieldGroup, fieldLocality}, 4, 1, []field{fieldHashes, fieldMedium}},
	AllBlocksCleared: {},
}
