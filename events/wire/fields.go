package wire

// kindOf returns the kind with a tag.
func kindOf(tag []byte) (Kind, bool) {
	for k, name := range kindNames {
		if string(tag) == name {
			return Kind(k), true
		}
	}
	return 0, false
}

// Fields of an event by number: their position in the array form.
const (
	storedHashes = 1 + iota
	storedParent
	storedTokens
	storedBlockSize
	storedLoRAID
	storedMedium
	storedLoRA
	storedExtra
	storedGroup
	storedKind
	storedWindow
)

const (
	removedHashes = 1 + iota
	removedMedium
	removedGroup
)

var storedNames = [...]string{
	storedHashes: "block_hashes", storedParent: "parent_block_hash", storedTokens: "token_ids",
	storedBlockSize: "block_size", storedLoRAID: "lora_id", storedMedium: "medium", storedLoRA: "lora_name",
	storedExtra: "extra_keys", storedGroup: "group_idx", storedKind: "kv_cache_spec_kind",
	storedWindow: "kv_cache_spec_sliding_window",
}

var removedNames = [...]string{removedHashes: "block_hashes", removedMedium: "medium", removedGroup: "group_idx"}

// fieldOf returns the position of a key, 0 for an unknown one.
func fieldOf(kind Kind, key []byte) int {
	names := storedNames[:]
	if kind == BlockRemoved {
		names = removedNames[:]
	} else if kind == AllBlocksCleared {
		return 0
	}
	for at := 1; at < len(names); at++ {
		if string(key) == names[at] {
			return at
		}
	}
	return 0
}
