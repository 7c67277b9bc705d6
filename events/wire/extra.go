package wire

import "github.com/tinylib/msgp/msgp"

// extra reads extra_keys, which must have one entry for each of this number of blocks. It checks
// only that, and returns the msgpack of all entries.
func (r *reader) extra(blocks int) []byte {
	inner := *r
	n := inner.array("extra_keys")
	raw := r.skip()
	if r.err == nil && (inner.err != nil || n != blocks) {
		r.fail("extra_keys: %d entries for %d blocks", n, blocks)
	}
	return raw
}

// ExtraKey is something besides its tokens that identifies a block: an adapter's name, a
// medium's identifier, a cache salt, or a hash of embeddings.
type ExtraKey struct {
	Block  int    // index into Event.Hashes
	Text   []byte // the key, if it is a string; nil for other types
	Nested bool   // the key is itself a tuple, such as a medium's identifier with its offset
	Raw    []byte // the msgpack of the key
}

// ExtraReader iterates over the extra keys of an event in order, without allocating.
type ExtraReader struct {
	r            reader
	blocks, left int // number of entries not yet read; number of keys left in the current entry
	at           int
}

// ExtraKeys returns an ExtraReader before the first key of e.
func (e *Event) ExtraKeys() ExtraReader {
	x := ExtraReader{r: reader{buf: e.Extra}, at: -1}
	if e.Extra != nil && !x.r.nil() {
		x.blocks = x.r.array("extra_keys")
	}
	return x
}

// Next returns the next key, or false at the end. An entry that is not a tuple counts as one
// key. The Text of a nested key is the first element of its tuple, if that is a string.
func (x *ExtraReader) Next() (ExtraKey, bool) {
	for x.left == 0 {
		if x.blocks == 0 || x.r.err != nil {
			return ExtraKey{}, false
		}
		x.blocks--
		x.at++
		if x.r.nil() {
			continue
		}
		if x.r.at(msgp.ArrayType) {
			x.left = x.r.array("extra_keys")
		} else {
			x.left = 1
		}
	}
	x.left--
	key := ExtraKey{Block: x.at}
	head := x.r
	key.Raw = x.r.skip()
	if x.r.err != nil {
		return ExtraKey{}, false
	}
	if head.at(msgp.ArrayType) {
		key.Nested = true
		if head.array("tuple") == 0 {
			return key, true
		}
	}
	if head.at(msgp.StrType) {
		key.Text = head.text("key", len(head.buf))
	}
	return key, true
}

// AppendExtra appends extra_keys made of strings to dst. keys[i] are the keys of block i.
func AppendExtra(dst []byte, keys [][]string) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(keys)))
	for _, of := range keys {
		if len(of) == 0 {
			dst = msgp.AppendNil(dst)
			continue
		}
		dst = msgp.AppendArrayHeader(dst, uint32(len(of)))
		for _, key := range of {
			dst = msgp.AppendString(dst, key)
		}
	}
	return dst
}
