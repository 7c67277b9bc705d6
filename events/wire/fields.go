package wire

// kindOf returns the kind with this tag. The second result is false for an unknown tag.
func kindOf(tag []byte) (Kind, bool) {
	for k, name := range kindNames {
		if string(tag) == name {
			return Kind(k), true
		}
	}
	return 0, false
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
)

var fieldNames = [...]string{
	fieldHashes: "block_hashes", fieldParent: "parent_block_hash", fieldTokens: "token_ids",
	fieldBlockSize: "block_size", fieldLoRAID: "lora_id", fieldMedium: "medium", fieldLoRA: "lora_name",
	fieldExtra: "extra_keys", fieldGroup: "group_idx", fieldKind: "kv_cache_spec_kind",
	fieldWindow: "kv_cache_spec_sliding_window",
}

// layout lists the fields of a kind of event, in the order of the array form. A reader needs at
// least the first fields, as many as least says. The fields of written are always written, even as
// nil; after them in a BlockStored come its extra keys, if there are any. (msgspec itself writes all
// positions of an array; readers accept both.)
type layout struct {
	fields  []field
	least   int
	written []field
}

var stored = [...]field{fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium, fieldLoRA, fieldExtra, fieldGroup, fieldKind, fieldWindow}

var layouts = [...]layout{
	BlockStored:      {stored[:], 4, stored[:7]},
	BlockRemoved:     {[]field{fieldHashes, fieldMedium, fieldGroup}, 1, []field{fieldHashes, fieldMedium}},
	AllBlocksCleared: {},
}
