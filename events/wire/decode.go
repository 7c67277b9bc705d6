package wire

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// Limits bound the contents of one batch. Zero fields take the defaults.
type Limits struct {
	PayloadBytes int `default:"16<<20"`  // 16 MiB: three times 1M tokens of 5 bytes
	Events       int `default:"16<<10"`  // 16384: an Event takes over 200 bytes of memory, but may be 2 bytes of input
	Blocks       int `default:"256<<10"` // 262144, over all events
	TextBytes    int `default:"1<<10"`   // 1024, per name
}

// maxSlab is the most tokens that a Decoder keeps memory for.
const maxSlab = 1 << 20

// maxHashBytes is the longest accepted hash: SHA-512.
const maxHashBytes = 64

// Decoder decodes batches, one after the other. The zero value is ready to use.
type Decoder struct {
	Limits Limits // read by the first Decode

	batch  Batch
	limits Limits
	r      reader
	hashes []uint64 // memory for all events of the batch
	tokens []uint32
}

// Decode decodes one payload. The batch and its slices are valid until the next Decode, and only
// while payload is unchanged. Input that is not entirely a batch, or exceeds Limits, gives
// ErrMalformed. Events of an unknown kind are counted and skipped, and unknown fields skipped,
// because newer publishers may send them.
//
// A hash may be given as bytes. Then its last 8 bytes are the hash, big-endian, as in vLLM's
// short form.
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	if d.limits == (Limits{}) {
		d.limits = bounds.Fill(d.Limits)
	}
	if len(payload) > d.limits.PayloadBytes {
		return nil, malformed("%d bytes, at most %d", len(payload), d.limits.PayloadBytes)
	}
	if cap(d.tokens) > maxSlab { // do not keep the memory of one huge batch
		d.hashes, d.tokens, d.batch.Events = nil, nil, nil
	}
	d.hashes, d.tokens = d.hashes[:0], d.tokens[:0]
	d.batch = Batch{Events: d.batch.Events[:0]}
	d.r = reader{buf: payload}
	d.readBatch()
	if d.r.err == nil && len(d.r.buf) > 0 {
		d.r.fail("%d bytes follow the batch", len(d.r.buf))
	}
	if d.r.err != nil {
		return nil, d.r.err
	}
	return &d.batch, nil
}

// readBatch reads a batch: a map with the keys ts, events and data_parallel_rank, or an array
// with these three in order. Further keys or elements are skipped.
func (d *Decoder) readBatch() {
	r, b := &d.r, &d.batch
	if r.at(msgp.MapType) {
		seen := 0
		for n := r.mapping(); n > 0 && r.err == nil; n-- {
			switch string(r.text("key", 64)) {
			case "ts":
				b.Time = r.float("time")
				seen |= 1
			case "events":
				if seen&2 != 0 {
					r.fail("events twice")
					return
				}
				d.readEvents()
				seen |= 2
			case "data_parallel_rank":
				d.readRank()
			default:
				r.skip()
			}
		}
		if seen != 3 {
			r.fail("ts or events missing")
		}
		return
	}
	n := r.array("batch")
	if n < 2 {
		r.fail("batch of %d elements, at least 2", n)
		return
	}
	b.Time = r.float("time")
	d.readEvents()
	if n > 2 {
		d.readRank()
	}
	for ; n > 3 && r.err == nil; n-- {
		r.skip()
	}
}

// readRank reads data_parallel_rank: a number or nil.
func (d *Decoder) readRank() {
	if !d.r.nil() {
		d.batch.Rank, d.batch.HasRank = uint32(d.r.number("rank", math.MaxUint32)), true
	}
}

// readEvents reads the list of events, each a map or an array.
func (d *Decoder) readEvents() {
	n := d.r.array("events")
	if n > d.limits.Events {
		d.r.fail("%d events, at most %d", n, d.limits.Events)
	}
	for ; n > 0 && d.r.err == nil; n-- {
		d.batch.Events = append(d.batch.Events, Event{})
		e := &d.batch.Events[len(d.batch.Events)-1]
		known := false
		if d.r.at(msgp.MapType) {
			known = d.readMap(e)
		} else {
			known = d.readArray(e)
		}
		if !known {
			d.batch.Events = d.batch.Events[:len(d.batch.Events)-1]
			d.batch.Unknown++
			continue
		}
		d.check(e)
	}
}

// check verifies that an event's fields agree with each other.
func (d *Decoder) check(e *Event) {
	if e.Kind == BlockStored && d.r.err == nil && !e.NamesOnly() {
		if e.BlockTokens == 0 {
			d.r.fail("BlockStored without a block size")
		} else if len(e.Tokens) != len(e.Hashes)*e.BlockTokens {
			d.r.fail("%d tokens for %d blocks of %d", len(e.Tokens), len(e.Hashes), e.BlockTokens)
		}
	}
}

// readArray reads an event in array form into e: the tag, then the fields by position. It
// returns false for an unknown tag.
func (d *Decoder) readArray(e *Event) bool {
	r := &d.r
	n := r.array("event")
	if n < 1 {
		r.fail("an event without a tag")
		return true
	}
	kind, known := kindOf(r.text("tag", d.limits.TextBytes))
	if !known {
		for ; n > 1 && r.err == nil; n-- {
			r.skip()
		}
		return false
	}
	e.Kind = kind
	l := &layouts[kind]
	if n--; n < l.least {
		r.fail("%v of %d fields, at least %d", kind, n, l.least)
		return true
	}
	for at := 0; at < n && r.err == nil; at++ {
		switch {
		case at >= l.positions:
			r.skip()
		case l.fields[at] == fieldLoRA && r.at(msgp.MapType):
			d.readMetadata(e)
		default:
			d.readField(e, l.fields[at])
		}
	}
	return true
}

// readMetadata reads the map that SGLang's array form has after the medium if the request had a salt
// (BlockStoredMetadata in its kv_events.py). Other keys are skipped.
func (d *Decoder) readMetadata(e *Event) {
	r := &d.r
	for n := r.mapping(); n > 0 && r.err == nil; n-- {
		if string(r.text("key", 64)) == fieldNames[fieldSalt] {
			d.readField(e, fieldSalt)
		} else {
			r.skip()
		}
	}
}

// readMap reads an event in map form into e. It returns false for an unknown tag.
func (d *Decoder) readMap(e *Event) bool {
	r := &d.r
	n := r.mapping()
	// All known publishers write the tag first, and it must be first: the meaning of the other
	// keys depends on it.
	if n < 1 || string(r.text("key", 64)) != "type" {
		r.fail("an event whose first key is not its type")
		return true
	}
	kind, known := kindOf(r.text("tag", d.limits.TextBytes))
	e.Kind = kind
	var fields []field
	if known {
		fields = layouts[kind].fields
	}
	seen := 0
	for ; n > 1 && r.err == nil; n-- {
		key := r.text("key", 64)
		at := slices.IndexFunc(fields, func(f field) bool { return string(key) == fieldNames[f] })
		if at < 0 {
			r.skip()
			continue
		}
		if seen&(1<<at) != 0 {
			r.fail("%s twice", key)
			return true
		}
		seen |= 1 << at
		d.readField(e, fields[at])
	}
	if len(fields) > 0 && seen&1 == 0 {
		r.fail("%v without block_hashes", kind)
	}
	return known
}

// readField reads the value of field f into e. For all fields but hashes and tokens, nil means
// that the field is absent.
func (d *Decoder) readField(e *Event, f field) {
	r := &d.r
	switch {
	case f == fieldHashes:
		d.readHashes(e)
		return
	case f == fieldTokens:
		d.readTokens(e)
		return
	case r.nil():
		return
	}
	text := d.limits.TextBytes
	switch f {
	case fieldParent:
		e.HasParent = true
		e.Parent, _ = r.hash()
	case fieldBlockSize:
		e.BlockTokens = int(r.number("block size", 1<<20))
	case fieldLoRAID:
		e.LoRAID, e.HasLoRAID = value(r, "LoRA id", msgp.ReadInt64Bytes), true
	case fieldMedium:
		e.Medium = r.text("medium", text)
	case fieldLoRA:
		e.LoRA = r.text("LoRA name", text)
	case fieldExtra:
		e.Extra = r.extra(len(e.Hashes))
	case fieldGroup:
		e.Group, e.HasGroup = int32(r.number("group", math.MaxInt32)), true
	case fieldKind:
		e.SpecKind = r.text("kind of cache", text)
	case fieldWindow:
		value(r, "window", msgp.ReadInt64Bytes) // not needed
	case fieldLocality:
		if !r.at(msgp.StrType) { // not needed, and other publishers may have something else at its position
			r.skip()
			return
		}
		e.Locality = r.text("locality", text)
	case fieldSalt: // a client chose it, so a long one must not make the batch unreadable
		e.Salt = r.text("salt", len(r.buf))
	}
}

// hash reads a hash: an integer, or bytes, of which the last 8 are v, big-endian. size is the number
// of bytes, 0 for an integer.
func (r *reader) hash() (v uint64, size int) {
	if b := r.buf; len(b) >= 9 && b[0] == 0xcf { // the usual form, inline as in readTokens
		r.buf = b[9:]
		return binary.BigEndian.Uint64(b[1:]), 0
	}
	if !r.at(msgp.BinType) {
		v, _ = r.integer("hash")
		return v, 0
	}
	raw := r.bin("hash", maxHashBytes)
	if len(raw) == 0 {
		r.fail("an empty hash")
		return 0, 0
	}
	var low [8]byte
	copy(low[max(0, 8-len(raw)):], raw[max(0, len(raw)-8):])
	return binary.BigEndian.Uint64(low[:]), len(raw)
}

// readHashes reads block_hashes into e: integers, or bytes that all have one length.
func (d *Decoder) readHashes(e *Event) {
	r := &d.r
	n := r.array("block_hashes")
	if n > d.limits.Blocks-len(d.hashes) || n > len(r.buf) {
		r.fail("%d blocks more, at most %d in a batch", n, d.limits.Blocks)
		return
	}
	from, size := len(d.hashes), 0
	for i := range n {
		v, bytes := r.hash()
		if r.err != nil {
			return
		}
		if i == 0 {
			size = bytes
		} else if bytes != size {
			r.fail("hashes of %d and %d bytes", size, bytes)
			return
		}
		d.hashes = append(d.hashes, v)
	}
	e.Hashes = d.hashes[from:len(d.hashes):len(d.hashes)]
}

// readTokens reads token_ids into e.
func (d *Decoder) readTokens(e *Event) {
	r := &d.r
	n := r.array("token_ids")
	if n > len(r.buf) { // each token takes at least a byte
		r.fail("%d tokens announced, %d bytes left", n, len(r.buf))
		return
	}
	from := len(d.tokens)
	for ; n > 0 && r.err == nil; n-- {
		// Common forms inline: this loop takes most of the time of a batch.
		if b := r.buf; len(b) >= 5 {
			switch c := b[0]; {
			case c < 0x80:
				d.tokens = append(d.tokens, uint32(c))
				r.buf = b[1:]
				continue
			case c == 0xcd:
				d.tokens = append(d.tokens, uint32(b[1])<<8|uint32(b[2]))
				r.buf = b[3:]
				continue
			case c == 0xce:
				d.tokens = append(d.tokens, binary.BigEndian.Uint32(b[1:]))
				r.buf = b[5:]
				continue
			}
		}
		d.tokens = append(d.tokens, uint32(r.number("token", math.MaxUint32)))
	}
	e.Tokens = d.tokens[from:len(d.tokens):len(d.tokens)]
}
