package wire

import (
	"encoding/binary"
	"math"
)

// AppendBatch appends the payload of b to dst. It reproduces the payload of a batch from Decode
// exactly if form.Compact is set and form.Arrays says how its events were written. It panics on
// an event whose numbers of tokens and hashes contradict each other, since that is a mistake of
// the caller.
func AppendBatch(dst []byte, b *Batch, form Form) []byte {
	elements := byte(2)
	if b.HasRank || b.NilRank {
		elements = 3
	}
	if b.AsMap {
		dst = appendText(append(dst, 0x80|elements), "ts")
		dst = appendFloat(dst, b.Time)
		dst = appendText(dst, "events")
	} else {
		dst = appendFloat(append(dst, 0x90|elements), b.Time)
	}
	dst = appendArray(dst, len(b.Events))
	for i := range b.Events {
		dst = appendEvent(dst, &b.Events[i], form)
	}
	if elements == 2 {
		return dst
	}
	if b.AsMap {
		dst = appendText(dst, "data_parallel_rank")
	}
	if !b.HasRank {
		return append(dst, 0xc0)
	}
	return appendUint(dst, uint64(b.Rank))
}

func appendFloat(dst []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(v))
}

// appendEvent appends one event. In array form it has e.Fields positions, or the ones that are
// always written if e.Fields is 0, and more if a later field is present.
func appendEvent(dst []byte, e *Event, form Form) []byte {
	if e.Kind == BlockStored && len(e.Tokens) != len(e.Hashes)*e.BlockTokens {
		panic("wire: AppendBatch: the tokens are not those of the blocks")
	}
	fields, written := layouts[e.Kind].fields, layouts[e.Kind].written
	if form.Arrays {
		n := written
		if e.Fields > 0 {
			n = min(e.Fields, len(fields))
		}
		for at := len(fields); at > n; at-- {
			if e.has(fields[at-1]) {
				n = at
			}
		}
		dst = appendArray(dst, n+1)
		dst = appendText(dst, kindNames[e.Kind])
		for _, f := range fields[:n] {
			dst = appendField(dst, e, f, form)
		}
		return dst
	}
	n := 1 + written
	for _, f := range fields[written:] {
		if e.has(f) {
			n++
		}
	}
	dst = append(dst, 0x80|byte(n)) // at most 12
	dst = appendText(dst, "type")
	dst = appendText(dst, kindNames[e.Kind])
	for i, f := range fields {
		if i < written || e.has(f) {
			dst = appendText(dst, fieldNames[f])
			dst = appendField(dst, e, f, form)
		}
	}
	return dst
}

// has reports whether field f is present in e.
func (e *Event) has(f field) bool {
	switch f {
	case fieldParent:
		return e.HasParent
	case fieldLoRAID:
		return e.HasLoRAID
	case fieldMedium:
		return e.Medium != nil
	case fieldLoRA:
		return e.LoRA != nil
	case fieldExtra:
		return e.Extra != nil
	case fieldGroup:
		return e.HasGroup
	case fieldKind:
		return e.SpecKind != nil
	case fieldWindow:
		return e.HasWindow
	}
	return true
}

// appendField appends the value of field f of e, nil if the field is absent.
func appendField(dst []byte, e *Event, f field, form Form) []byte {
	if !e.has(f) {
		return append(dst, 0xc0)
	}
	switch f {
	case fieldHashes:
		dst = appendArray(dst, len(e.Hashes))
		for i, h := range e.Hashes {
			if n := e.HashBytes; n > 0 {
				dst = appendBin(dst, e.Raw[i*n:(i+1)*n])
			} else {
				dst = appendHash(dst, h, e.Signed, form)
			}
		}
		return dst
	case fieldParent:
		if e.RawParent != nil {
			return appendBin(dst, e.RawParent)
		}
		return appendHash(dst, e.Parent, e.Signed, form)
	case fieldTokens:
		dst = appendArray(dst, len(e.Tokens))
		for _, t := range e.Tokens {
			dst = appendUint(dst, uint64(t))
		}
		return dst
	case fieldBlockSize:
		return appendUint(dst, uint64(e.BlockTokens))
	case fieldLoRAID:
		return appendInt(dst, e.LoRAID)
	case fieldMedium:
		return appendText(dst, e.Medium)
	case fieldLoRA:
		return appendText(dst, e.LoRA)
	case fieldExtra:
		return append(dst, e.Extra...)
	case fieldGroup:
		return appendUint(dst, uint64(e.Group))
	case fieldKind:
		return appendText(dst, e.SpecKind)
	default: // fieldWindow
		return appendInt(dst, e.Window)
	}
}

// appendHash appends an integer hash, signed or not, in 9 bytes or, with form.Compact, in the
// fewest.
func appendHash(dst []byte, h uint64, signed bool, form Form) []byte {
	switch {
	case signed && form.Compact:
		return appendInt(dst, int64(h))
	case form.Compact:
		return appendUint(dst, h)
	case signed:
		return binary.BigEndian.AppendUint64(append(dst, 0xd3), h)
	default:
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), h)
	}
}
