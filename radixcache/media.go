package radixcache

import "github.com/coppice-llm/coppice/kv"

// MediaToken is the first value that no token of a key may have: in the tree,
// values from here on stand for the tokens of media.
const MediaToken kv.Token = 1 << 31

// media gives each medium that the tree holds a number, one for each different
// placeholder in its span, so that the span is made of tokens that no other
// content has. Number i is the tokens MediaToken+2i, for the first of a span,
// and MediaToken+2i+1 for the rest: two equal images in a row are not one long one.
//
// A number lives as long as some token of the tree is one of its two; so hashes
// never collide by being cut short, and nothing is kept of what has gone.
type media struct {
	ids     map[mediaKey]uint32
	entries []mediaEntry
	free    []uint32
	scratch []kv.Token // a key as the tree sees it; valid until the next read or write
	added   []uint32   // numbers that the running insert made
}

type mediaKey struct {
	hash        uint64
	placeholder kv.Token
}

type mediaEntry struct {
	key  mediaKey
	uses int // tokens in the tree
}

// read is a key's tokens as the tree has them, up to the first medium that it
// does not know.
func (m *media) read(key *Key) []kv.Token {
	return m.translate(key, func(k mediaKey) (uint32, bool) {
		id, ok := m.ids[k]
		return id, ok
	})
}

// write is read that gives numbers to what is new.
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

func (m *media) translate(key *Key, number func(mediaKey) (uint32, bool)) []kv.Token {
	m.scratch = append(m.scratch[:0], key.Tokens...)
	end := 0
	for _, span := range key.Media {
		if span.At < end || span.Tokens < 1 || span.Tokens > len(key.Tokens)-span.At {
			return m.scratch[:min(max(span.At, 0), len(key.Tokens))] // half a medium is none
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

// count adds (sign 1) or subtracts (-1) the uses of media by tokens of the tree.
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

// release lets go of new numbers that the tree has not taken in.
func (m *media) release() {
	for _, id := range m.added {
		if m.entries[id].uses == 0 {
			m.drop(id)
		}
	}
	m.added = m.added[:0]
}

func (m *media) drop(id uint32) {
	delete(m.ids, m.entries[id].key)
	m.entries[id] = mediaEntry{}
	m.free = append(m.free, id)
}

// plain puts the placeholders back into a block of the tree's tokens, and
// appends the hashes of the media in it, each once, to hashes.
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

func appendOnce(hashes []uint64, hash uint64) []uint64 {
	for _, h := range hashes {
		if h == hash {
			return hashes
		}
	}
	return append(hashes, hash)
}
