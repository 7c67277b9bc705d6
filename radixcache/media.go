package radixcache

import (
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// MediaToken is the upper bound of the tokens of a key, exclusive: in the tree, values
// from MediaToken on stand for the tokens of media. Vocabularies are far below 2^31.
const MediaToken kv.Token = 1 << 31

// media gives each medium that the tree holds a number, one for each different
// placeholder in its span, and replaces the span by tokens that no other content has.
// Number i is the token MediaToken+2i for the first token of a span, and MediaToken+2i+1
// for the others: so two equal images in a row differ from one long image.
//
// Example: the key 7 P P P 8 with an image of hash h at [1,4) and number 5 becomes
// 7 M+10 M+11 M+11 8. Another image with the same placeholders has another number, and
// shares nothing from token 1 on.
//
// A number is in use as long as the tree has one of its two tokens. Different 64-bit hashes
// have different numbers, and a medium that left the tree takes no memory but its number.
type media struct {
	ids     map[mediaKey]uint32 // number of each medium in use
	entries []mediaEntry        // by number
	free    []uint32            // unused numbers
	scratch []kv.Token          // a key as the tree sees it; valid until the next read or write
	added   []uint32            // numbers that the running insert gave out
}

// mediaKey identifies a medium by its content's hash and one placeholder of its span.
type mediaKey struct {
	hash        uint64
	placeholder kv.Token
}

type mediaEntry struct {
	key  mediaKey
	uses int // number of tokens in the tree that stand for it
}

// read returns a key's tokens as the tree stores them, up to the first medium that the
// tree does not hold.
func (m *media) read(key *Key) []kv.Token {
	return m.translate(key, func(k mediaKey) (uint32, bool) {
		id, ok := m.ids[k]
		return id, ok
	})
}

// write is read, but gives numbers to media that the tree does not hold. Call release
// after the insertion.
func (m *media) write(key *Key) []kv.Token {
	m.added = m.added[:0]
	return m.translate(key, func(k mediaKey) (uint32, bool) {
		id, ok := m.ids[k]
		if ok {
			return id, true
		}
		if last := len(m.free) - 1; last >= 0 {
			id, m.free = m.free[last], m.free[:last]
		} else {
			id = uint32(len(m.entries))
			m.entries = append(m.entries, mediaEntry{})
		}
		if m.ids == nil {
			m.ids = map[mediaKey]uint32{}
		}
		m.entries[id], m.ids[k] = mediaEntry{key: k}, id
		m.added = append(m.added, id)
		return id, true
	})
}

// translate returns a key's tokens with media replaced by the tokens of their numbers, for
// which it calls number. The result is scratch memory. It ends before the first medium that
// is empty, overlaps the medium before it or exceeds the key, and at the first token of a
// medium for which number returns false.
func (m *media) translate(key *Key, number func(mediaKey) (uint32, bool)) []kv.Token {
	m.scratch = append(m.scratch[:0], key.Tokens...)
	end := 0
	for _, span := range key.Media {
		if span.At < end || span.Tokens < 1 || span.Tokens > len(key.Tokens)-span.At {
			return m.scratch[:min(max(span.At, 0), len(key.Tokens))] // a part of a medium is not shared
		}
		var id uint32
		for i := span.At; i < span.At+span.Tokens; i++ {
			if i == span.At || key.Tokens[i] != key.Tokens[i-1] {
				var ok bool
				if id, ok = number(mediaKey{span.Hash, key.Tokens[i]}); !ok {
					return m.scratch[:i]
				}
			}
			m.scratch[i] = MediaToken + kv.Token(2*id+uint32(count(i > span.At)))
		}
		end = span.At + span.Tokens
	}
	return m.scratch
}

// count adds (sign 1) or subtracts (sign -1) the uses of media by tokens that enter or leave
// the tree. It drops numbers that have no use left.
func (m *media) count(tokens []kv.Token, sign int) {
	if len(m.ids) == 0 {
		return
	}
	for _, t := range tokens {
		if t < MediaToken {
			continue
		}
		id := uint32(t-MediaToken) / 2
		if m.entries[id].uses += sign; m.entries[id].uses == 0 && sign < 0 {
			m.drop(id)
		}
	}
}

// release drops the numbers that write gave out and that the tree does not use, because the
// insertion added only a part of the key.
func (m *media) release() {
	for _, id := range m.added {
		if m.entries[id].uses == 0 {
			m.drop(id)
		}
	}
	m.added = m.added[:0]
}

// drop makes a number unused.
func (m *media) drop(id uint32) {
	delete(m.ids, m.entries[id].key)
	m.entries[id] = mediaEntry{}
	m.free = append(m.free, id)
}

// plain replaces the media tokens of a block by their placeholders, in place, so that events
// have the tokens that callers passed in. It returns hashes with the hashes of the block's
// media appended, each once.
func (m *media) plain(block []kv.Token, hashes []uint64) []uint64 {
	if len(m.ids) == 0 {
		return hashes
	}
	last := -1
	for i, t := range block {
		if t < MediaToken {
			continue
		}
		id := int(t-MediaToken) / 2
		block[i] = m.entries[id].key.placeholder
		if id != last {
			hashes = appendOnce(hashes, m.entries[id].key.hash)
			last = id
		}
	}
	return hashes
}

// appendOnce returns hashes with hash appended, unless hash is among them already. Blocks
// have few media, so a linear search is fast enough.
func appendOnce(hashes []uint64, hash uint64) []uint64 {
	if slices.Contains(hashes, hash) {
		return hashes
	}
	return append(hashes, hash)
}
