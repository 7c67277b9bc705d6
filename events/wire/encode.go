package wire

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"
)

// The names in an event, as they are written.
var (
	typeText   = msgp.AppendString(nil, "type")
	kindTexts  = encoded(kindNames[:])
	fieldTexts = encoded(fieldNames[:])
)

func encoded(names []string) (texts [][]byte) {
	for _, name := range names {
		texts = append(texts, msgp.AppendString(nil, name))
	}
	return texts
}

// AppendBatch appends the payload of b to dst. It reproduces the payload of a batch from Decode
// exactly if form.Compact is set and form.Arrays says how its events were written. It panics on
// an event whose numbers of tokens and hashes contradict each other, since that is a mistake of
// the caller.
func AppendBatch(dst []byte, b *Batch, form Form) []byte {
	elements := uint32(2)
	if b.HasRank || b.NilRank {
		elements = 3
	}
	if b.AsMap {
		dst = msgp.AppendString(msgp.AppendMapHeader(dst, elements), "ts")
		dst = msgp.AppendFloat64(dst, b.Time)
		dst = msgp.AppendString(dst, "events")
	} else {
		dst = msgp.AppendFloat64(msgp.AppendArrayHeader(dst, elements), b.Time)
	}
	dst = msgp.AppendArrayHeader(dst, uint32(len(b.Events)))
	for i := range b.Events {
		dst = appendEvent(dst, &b.Events[i], form)
	}
	if elements == 2 {
		return dst
	}
	if b.AsMap {
		dst = msgp.AppendString(dst, "data_parallel_rank")
	}
	if !b.HasRank {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendUint64(dst, uint64(b.Rank))
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
		dst = msgp.AppendArrayHeader(dst, uint32(n+1))
		dst = append(dst, kindTexts[e.Kind]...)
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
	dst = msgp.AppendMapHeader(dst, uint32(n))
	dst = append(dst, typeText...)
	dst = append(dst, kindTexts[e.Kind]...)
	for i, f := range fields {
		if i < written || e.has(f) {
			dst = append(dst, fieldTexts[f]...)
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
		return msgp.AppendNil(dst)
	}
	switch f {
	case fieldHashes:
		dst = msgp.AppendArrayHeader(dst, uint32(len(e.Hashes)))
		for i, h := range e.Hashes {
			if n := e.HashBytes; n > 0 {
				dst = msgp.AppendBytes(dst, e.Raw[i*n:(i+1)*n])
			} else {
				dst = appendHash(dst, h, e.Signed, form)
			}
		}
		return dst
	case fieldParent:
		if e.RawParent != nil {
			return msgp.AppendBytes(dst, e.RawParent)
		}
		return appendHash(dst, e.Parent, e.Signed, form)
	case fieldTokens:
		dst = msgp.AppendArrayHeader(dst, uint32(len(e.Tokens)))
		for _, t := range e.Tokens {
			dst = appendToken(dst, t)
		}
		return dst
	case fieldBlockSize:
		return msgp.AppendUint64(dst, uint64(e.BlockTokens))
	case fieldLoRAID:
		return appendInt(dst, e.LoRAID)
	case fieldMedium:
		return msgp.AppendStringFromBytes(dst, e.Medium)
	case fieldLoRA:
		return msgp.AppendStringFromBytes(dst, e.LoRA)
	case fieldExtra:
		return append(dst, e.Extra...)
	case fieldGroup:
		return msgp.AppendUint64(dst, uint64(e.Group))
	case fieldKind:
		return msgp.AppendStringFromBytes(dst, e.SpecKind)
	default: // fieldWindow
		return appendInt(dst, e.Window)
	}
}

// appendToken appends a token in its shortest form. Tokens take most of the time of a batch, and
// msgp.AppendUint64 takes almost twice as long.
func appendToken(dst []byte, t uint32) []byte {
	switch {
	case t >= 1<<16:
		return append(dst, 0xce, byte(t>>24), byte(t>>16), byte(t>>8), byte(t))
	case t >= 1<<8:
		return append(dst, 0xcd, byte(t>>8), byte(t))
	case t >= 1<<7:
		return append(dst, 0xcc, byte(t))
	default:
		return append(dst, byte(t))
	}
}

// appendHash appends an integer hash, signed or not, in 9 bytes or, with form.Compact, in the
// fewest.
func appendHash(dst []byte, h uint64, signed bool, form Form) []byte {
	switch {
	case signed && form.Compact:
		return appendInt(dst, int64(h))
	case form.Compact:
		return msgp.AppendUint64(dst, h)
	case signed:
		return binary.BigEndian.AppendUint64(append(dst, 0xd3), h)
	default:
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), h)
	}
}
