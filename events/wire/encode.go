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

// AppendBatch appends the payload of b to dst. It panics on an event whose numbers of tokens and
// hashes contradict each other, since that is a mistake of the caller.
func AppendBatch(dst []byte, b *Batch, form Form) []byte {
	elements := uint32(2)
	if b.HasRank {
		elements = 3
	}
	dst = msgp.AppendFloat64(msgp.AppendArrayHeader(dst, elements), b.Time)
	dst = msgp.AppendArrayHeader(dst, uint32(len(b.Events)))
	for i := range b.Events {
		dst = appendEvent(dst, &b.Events[i], form)
	}
	if b.HasRank {
		dst = msgp.AppendUint64(dst, uint64(b.Rank))
	}
	return dst
}

// appendEvent appends one event: the fields that are always written, and its extra keys if it has any.
func appendEvent(dst []byte, e *Event, form Form) []byte {
	if e.Kind == BlockStored && len(e.Tokens) != len(e.Hashes)*e.BlockTokens && !e.NamesOnly() {
		panic("wire: AppendBatch: the tokens are not those of the blocks")
	}
	fields := layouts[e.Kind].written
	if e.Extra != nil {
		fields = fields[:len(fields)+1] // fieldExtra stands after them
	}
	if form.Arrays {
		dst = msgp.AppendArrayHeader(dst, uint32(1+len(fields)))
	} else {
		dst = append(msgp.AppendMapHeader(dst, uint32(1+len(fields))), typeText...)
	}
	dst = append(dst, kindTexts[e.Kind]...)
	for _, f := range fields {
		if !form.Arrays {
			dst = append(dst, fieldTexts[f]...)
		}
		dst = appendField(dst, e, f)
	}
	return dst
}

// appendField appends the value of field f of e, nil if the field is absent.
func appendField(dst []byte, e *Event, f field) []byte {
	switch {
	case f == fieldHashes:
		dst = msgp.AppendArrayHeader(dst, uint32(len(e.Hashes)))
		for _, h := range e.Hashes {
			dst = appendHash(dst, h)
		}
		return dst
	case f == fieldTokens:
		dst = msgp.AppendArrayHeader(dst, uint32(len(e.Tokens)))
		for _, t := range e.Tokens {
			dst = appendToken(dst, t)
		}
		return dst
	case f == fieldBlockSize:
		return msgp.AppendUint64(dst, uint64(e.BlockTokens))
	case f == fieldParent && e.HasParent:
		return appendHash(dst, e.Parent)
	case f == fieldMedium && e.Medium != nil:
		return msgp.AppendStringFromBytes(dst, e.Medium)
	case f == fieldLoRA && e.LoRA != nil:
		return msgp.AppendStringFromBytes(dst, e.LoRA)
	case f == fieldExtra:
		return append(dst, e.Extra...)
	}
	return msgp.AppendNil(dst)
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

// appendHash appends a hash in nine bytes, because llm-d refuses hashes below 2^32 in short form.
func appendHash(dst []byte, h uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), h)
}
