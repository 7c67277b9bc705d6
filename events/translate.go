package events

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/events/wire"
	"github.com/coppice-llm/coppice/kv"
)

// translator converts one rank's wire events for an index: tokens to content hashes, which it
// computes itself, and names of media to tiers. The worker's own hashes serve only as names of
// blocks. So a worker can't claim content without having its tokens.
type translator struct {
	size   int // tokens per block
	limit  int // most blocks in salts
	salts  map[kv.BlockHash]saltOf
	group  int32 // the KV cache group in use; -1: none seen yet
	blocks []Block
	tokens []kv.Token
	media  []uint64
	hashes []kv.BlockHash
	buf    []byte
}

// saltOf is the salt of a block, and the tiers that have the block (one bit each). Only the
// first block of a salted sequence names the salt (or the first block after a public prefix),
// but the hashes of all later blocks depend on it too.
type saltOf struct {
	salt  string
	tiers uint8
}

func newTranslator(size, limit int) *translator {
	return &translator{size: size, limit: limit, salts: make(map[kv.BlockHash]saltOf), group: -1}
}

// reset forgets the salts and the KV cache group, for a new publisher.
func (t *translator) reset() {
	clear(t.salts)
	t.group = -1
}

// skipReason is the reason for skipping a well-formed event.
type skipReason uint8

const (
	notSkipped skipReason = iota
	unknownMedium
	otherGroup // an event of a hybrid model for another group than the one with full attention
	saltLimit  // the limit SaltedBlocks was reached
)

// errBlockSize is the error for a worker whose blocks have another number of tokens than the
// index's.
type errBlockSize struct{ worker, index int }

func (e errBlockSize) Error() string {
	return fmt.Sprintf("events: the worker's blocks are of %d tokens, the index's of %d: give both the same block size", e.worker, e.index)
}

// stored translates a BlockStored. The Blocks of the result are valid until the next call. If
// they are empty, there is nothing to store; the second result says why an event was skipped. An
// error means that the worker can't be indexed.
func (t *translator) stored(e *wire.Event) (Stored, skipReason, error) {
	if len(e.Hashes) == 0 {
		return Stored{}, notSkipped, nil
	}
	if e.BlockTokens != t.size {
		return Stored{}, notSkipped, errBlockSize{e.BlockTokens, t.size}
	}
	tier, known := tierOf(e.Medium)
	if !known {
		return Stored{}, unknownMedium, nil
	}
	if !t.counts(e) {
		return Stored{}, otherGroup, nil
	}
	s := Stored{Tier: tier, Parent: kv.BlockHash(e.Parent), HasParent: e.HasParent}
	ns := kv.Namespace{LoRA: string(e.LoRA)}
	if e.LoRA == nil && e.HasLoRAID {
		ns.LoRA = fmt.Sprintf("#%d", e.LoRAID) // an old form: the adapter has no name
	}
	if s.HasParent {
		if ns.Salt = t.salts[s.Parent].salt; ns.Salt == "" {
			ns.Salt = privateSaltIn(e)
		}
	} else {
		ns.Salt = saltIn(e)
	}
	if ns.Salt != "" && len(t.salts)+len(e.Hashes) > t.limit {
		return Stored{}, saltLimit, nil
	}
	seed := ns.Seed()
	keys := e.ExtraKeys()
	key, more := keys.Next()
	t.blocks = t.blocks[:0]
	for i, hash := range e.Hashes {
		t.tokens = t.tokens[:0]
		for _, token := range e.Tokens[i*t.size : (i+1)*t.size] {
			t.tokens = append(t.tokens, kv.Token(token))
		}
		t.media = t.media[:0]
		for ; more && key.Block == i; key, more = keys.Next() {
			isName := !key.Nested && key.Text != nil && string(key.Text) == ns.LoRA
			isSalt := !key.Nested && i == 0 && ns.Salt != "" && (!s.HasParent && string(key.Text) == ns.Salt || s.HasParent && isPrivate(key.Text))
			if !isName && !isSalt {
				t.media = append(t.media, mediumOf(&key))
			}
		}
		b := Block{Hash: kv.BlockHash(hash)}
		if len(t.media) == 0 {
			b.Local = kv.HashLocal(t.tokens, seed)
		} else {
			slices.Sort(t.media)
			b.Local, t.buf = kv.HashLocalMedia(t.tokens, slices.Compact(t.media), seed, t.buf)
		}
		t.blocks = append(t.blocks, b)
		if ns.Salt != "" {
			was := t.salts[b.Hash]
			t.salts[b.Hash] = saltOf{ns.Salt, was.tiers | 1<<tier}
		}
	}
	s.Blocks = t.blocks
	return s, notSkipped, nil
}

// counts reports whether an event is of the KV cache group that decides what prefixes are
// cached: the first group with full attention. A group with a sliding window removes blocks that
// a prefix still needs.
func (t *translator) counts(e *wire.Event) bool {
	if !e.HasGroup {
		return true
	}
	if t.group < 0 {
		switch string(e.SpecKind) {
		case "", "full_attention", "mla_attention", "sink_full_attention":
			t.group = e.Group
		}
	}
	return t.group == e.Group
}

// removed translates a BlockRemoved into a tier and hashes. The hashes are valid until the next
// call. The third result says why an event was skipped.
func (t *translator) removed(e *wire.Event) (kv.Tier, []kv.BlockHash, skipReason) {
	tier, known := tierOf(e.Medium)
	if !known {
		return 0, nil, unknownMedium
	}
	if e.HasGroup && t.group >= 0 && e.Group != t.group {
		return 0, nil, otherGroup
	}
	t.hashes = t.hashes[:0]
	for _, h := range e.Hashes {
		hash := kv.BlockHash(h)
		t.hashes = append(t.hashes, hash)
		if s, salted := t.salts[hash]; salted {
			if s.tiers &^= 1 << tier; s.tiers == 0 {
				delete(t.salts, hash)
			} else {
				t.salts[hash] = s
			}
		}
	}
	return tier, t.hashes, notSkipped
}

// mediaDigits is the length of a medium's identifier: SHA-256 or BLAKE3 in hexadecimal.
const mediaDigits = 64

// saltIn returns the salt that the first block of a sequence names, "" if it names none. The
// salt is the last of the block's extra keys, if that key is a plain string, is not a medium,
// and is not the first key that equals the adapter's name.
func saltIn(e *wire.Event) (salt string) {
	named := false
	for keys := e.ExtraKeys(); ; {
		key, ok := keys.Next()
		if !ok || key.Block > 0 {
			return salt
		}
		salt = ""
		if key.Text != nil && !key.Nested {
			if !named && bytes.Equal(key.Text, e.LoRA) {
				named = true
			} else if _, medium := mediumHash(key.Text); !medium {
				salt = string(key.Text)
			}
		}
	}
}

// privateMark precedes the salt of a block whose parent is public. Any other key in the
// middle of a sequence is a medium.
const privateMark = "coppice.salt:"

// privateSaltIn returns the salt that the first block of e names after privateMark, "" if it
// names none.
func privateSaltIn(e *wire.Event) string {
	for keys := e.ExtraKeys(); ; {
		key, ok := keys.Next()
		if !ok || key.Block > 0 {
			return ""
		}
		if !key.Nested && isPrivate(key.Text) {
			return string(key.Text[len(privateMark):])
		}
	}
}

func isPrivate(key []byte) bool { return bytes.HasPrefix(key, []byte(privateMark)) }

// mediumOf returns a hash for an extra key of a block that is neither the adapter's name nor the
// salt. If the key is the identifier of a medium (see mediumHash), that is the medium's hash.
// Otherwise it is a hash of the key's raw bytes. So a prompt without the same key never matches
// the block, whatever the key means.
func mediumOf(key *wire.ExtraKey) uint64 {
	if key.Text != nil {
		if h, ok := mediumHash(key.Text); ok {
			return h
		}
	}
	return xxh3.Hash(key.Raw) ^ math.MaxUint32
}

// mediumHash returns the number in the first 16 of 64 hexadecimal digits, as Dynamo does. The
// second result is false if text is anything else.
func mediumHash(text []byte) (uint64, bool) {
	var b [mediaDigits / 2]byte
	if len(text) != mediaDigits {
		return 0, false
	}
	if _, err := hex.Decode(b[:], text); err != nil {
		return 0, false
	}
	h := uint64(0)
	for _, v := range b[:8] {
		h = h<<8 | uint64(v)
	}
	return h, true
}

// media are the names of the tiers on the wire: GPU, CPU and DISK as in vLLM and SGLang,
// and two of our own.
var media = [kv.Tiers]string{kv.TierDevice: "GPU", kv.TierHost: "CPU", kv.TierDisk: "DISK", kv.TierShared: "SHARED", kv.TierObject: "OBJECT"}

// pinned is a former name on our wire for page-locked host memory.
var pinned = []byte("CPU_PINNED")

var mediaBytes = func() (b [len(media)][]byte) {
	for t, name := range media {
		b[t] = []byte(name)
	}
	return b
}()

// tierOf returns the tier with the given name on the wire; letter case does not matter. nil
// means the device, because old publishers know only that. The second result is false for an
// unknown name.
func tierOf(medium []byte) (kv.Tier, bool) {
	if medium == nil {
		return kv.TierDevice, true
	}
	for t := range mediaBytes {
		if bytes.EqualFold(medium, mediaBytes[t]) {
			return kv.Tier(t), true
		}
	}
	if bytes.EqualFold(medium, pinned) {
		return kv.TierHost, true
	}
	return 0, false
}
