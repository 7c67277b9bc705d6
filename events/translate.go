package events

import (
	"bytes"
	"encoding/binary"
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
	size   int // tokens per block of the index
	parts  int // blocks of the index per block of the worker; 0: none seen yet
	limit  int // most blocks in salts
	salts  map[kv.BlockHash]saltOf
	left   leftSalts
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

// reset forgets the salts, the KV cache group and the size of blocks, for a new publisher.
func (t *translator) reset() {
	clear(t.salts)
	t.left, t.group, t.parts = leftSalts{}, -1, 0
}

// skipReason is the reason for skipping a well-formed event.
type skipReason uint8

const (
	notSkipped skipReason = iota
	unknownMedium
	otherGroup // an event of a hybrid model for another group than the one with full attention, or of another size of blocks
	saltLimit  // the limit SaltedBlocks was reached, or the salt is too long
)

// maxSalt is the longest salt that is remembered, in bytes.
const maxSalt = 1 << 10

// errBlockSize is the error for a worker whose blocks have another number of tokens than the
// index's.
type errBlockSize struct{ worker, index int }

func (e errBlockSize) Error() string {
	return fmt.Sprintf("events: the worker's blocks are of %d tokens, no multiple of the index's %d: give both the same block size", e.worker, e.index)
}

// stored translates a BlockStored. The Blocks of the result are valid until the next call. If
// they are empty, there is nothing to store; the second result says why an event was skipped. An
// error means that the worker can't be indexed.
func (t *translator) stored(e *wire.Event) (Stored, skipReason, error) {
	if len(e.Hashes) == 0 {
		return Stored{}, notSkipped, nil
	}
	if !e.NamesOnly() && e.BlockTokens%t.size != 0 {
		return Stored{}, notSkipped, errBlockSize{e.BlockTokens, t.size}
	}
	tier, known := tierOf(e)
	if !known {
		return Stored{}, unknownMedium, nil
	}
	if !t.counts(e) {
		return Stored{}, otherGroup, nil
	}
	if e.NamesOnly() {
		return t.named(e, tier), notSkipped, nil
	}
	if t.parts == 0 {
		t.parts = e.BlockTokens / t.size
	} else if t.parts != e.BlockTokens/t.size { // its names could not be removed as they were stored
		return Stored{}, otherGroup, nil
	}
	if e.Parent == 0 {
		e.HasParent = false // llm-d's simulator (v0.10.2) names block 0 before the first block of a sequence
	}
	s := Stored{Tier: tier, Parent: kv.BlockHash(e.Parent), HasParent: e.HasParent}
	ns := kv.Namespace{LoRA: string(e.LoRA), Salt: t.saltOf(e)}
	if e.LoRA == nil && e.HasLoRAID {
		ns.LoRA = fmt.Sprintf("#%d", e.LoRAID) // an old form: the adapter has no name
	}
	if len(ns.Salt) > maxSalt || ns.Salt != "" && len(t.salts)+len(e.Hashes) > t.limit {
		return Stored{}, saltLimit, nil
	}
	t.hash(e, ns)
	s.Blocks = t.blocks
	if ns.Salt != "" {
		for _, hash := range e.Hashes {
			was := t.salts[kv.BlockHash(hash)]
			t.salts[kv.BlockHash(hash)] = saltOf{ns.Salt, was.tiers | 1<<tier}
		}
	}
	return s, notSkipped, nil
}

// hash sets t.blocks to the blocks of e, which are in namespace ns.
func (t *translator) hash(e *wire.Event, ns kv.Namespace) {
	seed := ns.Seed()
	keys := e.ExtraKeys()
	key, more := keys.Next()
	t.blocks = t.blocks[:0]
	tokens := e.Tokens
	for i, hash := range e.Hashes {
		t.media = t.media[:0]
		for ; more && key.Block == i; key, more = keys.Next() {
			isName := !key.Nested && key.Text != nil && string(key.Text) == ns.LoRA
			isSalt := !key.Nested && i == 0 && ns.Salt != "" && (!e.HasParent && string(key.Text) == ns.Salt || e.HasParent && isPrivate(key.Text))
			if !isName && !isSalt {
				t.media = append(t.media, mediumOf(&key))
			}
		}
		slices.Sort(t.media)
		t.media = slices.Compact(t.media)
		for part := range t.parts {
			t.tokens = t.tokens[:0]
			for _, token := range tokens[:t.size] {
				t.tokens = append(t.tokens, kv.Token(token))
			}
			tokens = tokens[t.size:]
			b := Block{Hash: t.name(hash, part)}
			if len(t.media) == 0 {
				b.Local = kv.HashLocal(t.tokens, seed)
			} else {
				b.Local, t.buf = kv.HashLocalMedia(t.tokens, t.media, seed, t.buf)
			}
			t.blocks = append(t.blocks, b)
		}
	}
}

// name returns the name of a part of the worker's block with this hash. The last part has the block's own name, which
// is also that of a child's parent. The index sees names only, so the others may be any function of it.
func (t *translator) name(hash uint64, part int) kv.BlockHash {
	if part >= t.parts-1 {
		return kv.BlockHash(hash)
	}
	var b [9]byte
	binary.LittleEndian.PutUint64(b[:], hash)
	b[8] = byte(part)
	return kv.BlockHash(xxh3.HashSeed(b[:], uint64(part>>8)))
}

// named translates a BlockStored that only names blocks.
func (t *translator) named(e *wire.Event, tier kv.Tier) Stored {
	t.blocks = t.blocks[:0]
	for _, hash := range e.Hashes {
		for part := range t.parts { // none if no event with tokens has come: then the rank has no such block
			t.blocks = append(t.blocks, Block{Hash: t.name(hash, part)})
		}
		if was, salted := t.salts[kv.BlockHash(hash)]; salted {
			was.tiers |= 1 << tier
			t.salts[kv.BlockHash(hash)] = was
		}
	}
	return Stored{Tier: tier, Named: true, Blocks: t.blocks}
}

// saltOf returns the salt of the blocks of e, "" for none. SGLang names it in each event. Otherwise the block before
// knows it; at the start of a sequence the extra keys name it. vLLM's offloading connector writes no extra keys when it
// copies a block to another tier: then the salt is the one under which the block was stored before.
func (t *translator) saltOf(e *wire.Event) string {
	salt := ""
	switch {
	case len(e.Salt) > 0:
		return string(e.Salt)
	case e.HasParent:
		if salt = t.saltOfBlock(e.Parent); salt == "" {
			salt = privateSaltIn(e)
		}
	default:
		salt = saltIn(e)
	}
	if salt == "" && e.Extra == nil {
		salt = t.saltOfBlock(e.Hashes[0])
	}
	return salt
}

// saltOfBlock returns the remembered salt of a block, "" for none.
func (t *translator) saltOfBlock(hash uint64) string {
	if s, held := t.salts[kv.BlockHash(hash)]; held {
		return s.salt
	}
	return t.left.salts[kv.BlockHash(hash)]
}

// maxLeft bounds the salts in leftSalts.
const maxLeft = 1024

// leftSalts holds the salts of the latest blocks that left their last tier. The copy of a block into a lower tier may be
// reported after the removal of the block from the device, and without its salt.
type leftSalts struct {
	salts map[kv.BlockHash]string
	order []kv.BlockHash // a ring once it has maxLeft elements
	next  int
}

// add remembers the salt of a block, in the place of the oldest one if there are maxLeft.
func (l *leftSalts) add(hash kv.BlockHash, salt string) {
	if l.salts == nil {
		l.salts = make(map[kv.BlockHash]string)
	}
	if len(l.order) < maxLeft {
		l.order = append(l.order, hash)
	} else {
		delete(l.salts, l.order[l.next])
		l.order[l.next] = hash
		l.next = (l.next + 1) % maxLeft
	}
	l.salts[hash] = salt
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
	tier, known := tierOf(e)
	if !known {
		return 0, nil, unknownMedium
	}
	if e.HasGroup && t.group >= 0 && e.Group != t.group {
		return 0, nil, otherGroup
	}
	t.hashes = t.hashes[:0]
	for _, hash := range e.Hashes {
		for part := range max(1, t.parts) {
			t.hashes = append(t.hashes, t.name(hash, part))
		}
		h := kv.BlockHash(hash)
		if s, salted := t.salts[h]; salted {
			if s.tiers &^= 1 << tier; s.tiers == 0 {
				delete(t.salts, h)
				t.left.add(h, s.salt)
			} else {
				t.salts[h] = s
			}
		}
	}
	return tier, t.hashes, notSkipped
}

// mediaDigits is the length of a medium's identifier: SHA-256 or BLAKE3 in hexadecimal.
const mediaDigits = 64

// saltIn returns the salt that the first block of a sequence names, "" if it names none. The
// salt is the last of the block's extra keys, if that key is a plain string, is not a medium as we
// write them, and is not the first key that equals the adapter's name. vLLM writes a medium as a tuple of
// its identifier and an offset (_gen_mm_extra_hash_keys in vllm/v1/core/kv_cache_utils.py). Its older
// versions write a plain string, which counts as a salt here: no prompt has it.
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
			} else if !isOurMedium(key.Text) {
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

// isOurMedium reports whether text is a medium as encoder.extraKeys writes it: 16 hexadecimal digits and 48 zeros.
func isOurMedium(text []byte) bool {
	_, ok := mediumHash(text)
	return ok && bytes.HasSuffix(text, ourMediumEnd)
}

var ourMediumEnd = bytes.Repeat([]byte("0"), mediaDigits-16)

// media are the names of the tiers on the wire: GPU, CPU and DISK as in vLLM and SGLang,
// and two of our own.
var media = [kv.Tiers]string{kv.TierDevice: "GPU", kv.TierHost: "CPU", kv.TierDisk: "DISK", kv.TierShared: "SHARED", kv.TierObject: "OBJECT"}

// foreignMedia are further names, by others' publishers.
var foreignMedia = []struct {
	name []byte
	tier kv.Tier
}{
	{[]byte("CPU_PINNED"), kv.TierHost},       // SGLang (StorageMedium in kv_events.py); once on our wire too
	{[]byte("STORAGE"), kv.TierDisk},          // vLLM's secondary tiers, unless the locality is REMOTE; Dynamo counts it as disk
	{[]byte("EXTERNAL"), kv.TierShared},       // SGLang: a shared or remote pool, such as Mooncake
	{[]byte("SHARED_STORAGE"), kv.TierShared}, // llm-d's file system connector
	{[]byte("OBJECT_STORAGE"), kv.TierObject}, // and its connector for object stores
}

var mediaBytes = func() (b [len(media)][]byte) {
	for t, name := range media {
		b[t] = []byte(name)
	}
	return b
}()

// tierOf returns the tier of an event; letter case of the medium does not matter. No medium
// means the device, because old publishers know only that. A disk of another machine counts as shared. The
// second result is false for an unknown medium.
func tierOf(e *wire.Event) (kv.Tier, bool) {
	tier, known := mediumTier(e.Medium)
	if tier == kv.TierDisk && bytes.EqualFold(e.Locality, remote) {
		tier = kv.TierShared
	}
	return tier, known
}

var remote = []byte("REMOTE")

func mediumTier(medium []byte) (kv.Tier, bool) {
	if medium == nil {
		return kv.TierDevice, true
	}
	for t := range mediaBytes {
		if bytes.EqualFold(medium, mediaBytes[t]) {
			return kv.Tier(t), true
		}
	}
	for i := range foreignMedia {
		if f := &foreignMedia[i]; bytes.EqualFold(medium, f.name) {
			return f.tier, true
		}
	}
	return 0, false
}
