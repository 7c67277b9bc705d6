package wire

import (
	"encoding/binary"
	"math"
)

// These fields are always written, nil or not. Later ones have defaults: maps omit them when
// nil, arrays omit trailing nil ones. (msgspec itself writes all positions of an array; readers
// accept both.)
const (
	storedRequired  = storedLoRA
	removedRequired = removedMedium
)

// AppendBatch appends the payload of b. A batch from Decode is reproduced exactly with
// Form.Compact and the form of its events. It panics on an event whose fields contradict each
// other, since that is a mistake of the caller.
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

// appendEvent writes one event. The array form extends to the last field present, and has at
// least e.Fields positions, or the required ones if e.Fields is 0.
func appendEvent(dst []byte, e *Event, form Form) []byte {
	names, required := storedNames[:], storedRequired
	switch e.Kind {
	case BlockRemoved:
		names, required = removedNames[:], removedRequired
	case AllBlocksCleared:
		names, required = nil, 0
	default:
		if len(e.Tokens) != len(e.Hashes)*e.BlockTokens {
			panic("wire: AppendBatch: the tokens are not those of the blocks")
		}
	}
	if form.Arrays {
		n := required
		if e.Fields > 0 {
			n = min(e.Fields, max(len(names)-1, 0))
		}
		for at := len(names) - 1; at > n; at-- {
			if e.has(at) {
				n = at
			}
		}
		dst = appendArray(dst, n+1)
		dst = appendText(dst, kindNames[e.Kind])
		for at := 1; at <= n; at++ {
			dst = appendField(dst, e, at, form)
		}
		return dst
	}
	n := 1 + required
	for at := required + 1; at < len(names); at++ {
		if e.has(at) {
			n++
		}
	}
	dst = append(dst, 0x80|byte(n)) // at most 12
	dst = appendText(dst, "type")
	dst = appendText(dst, kindNames[e.Kind])
	for at := 1; at < len(names); at++ {
		if at <= required || e.has(at) {
			dst = appendText(dst, names[at])
			dst = appendField(dst, e, at, form)
		}
	}
	return dst
}

// has reports whether an optional field is present.
func (e *Event) has(at int) bool {
	if e.Kind == BlockRemoved {
		return at == removedMedium && e.Medium != nil || at == removedGroup && e.HasGroup
	}
	switch at {
	case storedLoRAID:
		return e.HasLoRAID
	case storedMedium:
		return e.Medium != nil
	case storedLoRA:
		return e.LoRA != nil
	case storedExtra:
		return e.Extra != nil
	case storedGroup:
		return e.HasGroup
	case storedKind:
		return e.SpecKind != nil
	case storedWindow:
		return e.HasWindow
	}
	return true
}

// appendField writes the field at a position, nil if it is absent.
func appendField(dst []byte, e *Event, at int, form Form) []byte {
	if at == storedHashes {
		dst = appendArray(dst, len(e.Hashes))
		for i, h := range e.Hashes {
			if n := e.HashBytes; n > 0 {
				dst = appendBin(dst, e.Raw[i*n:(i+1)*n])
			} else {
				dst = appendHash(dst, h, e.Signed, form)
			}
		}
		return dst
	}
	if at == storedParent && e.Kind == BlockStored {
		switch {
		case !e.HasParent:
			return append(dst, 0xc0)
		case e.RawParent != nil:
			return appendBin(dst, e.RawParent)
		default:
			return appendHash(dst, e.Parent, e.Signed, form)
		}
	}
	if !e.has(at) {
		return append(dst, 0xc0)
	}
	if e.Kind == BlockRemoved {
		if at == removedMedium {
			return appendText(dst, e.Medium)
		}
		return appendUint(dst, uint64(e.Group))
	}
	switch at {
	case storedTokens:
		dst = appendArray(dst, len(e.Tokens))
		for _, t := range e.Tokens {
			dst = appendUint(dst, uint64(t))
		}
	case storedBlockSize:
		dst = appendUint(dst, uint64(e.BlockTokens))
	case storedLoRAID:
		dst = appendInt(dst, e.LoRAID)
	case storedMedium:
		dst = appendText(dst, e.Medium)
	case storedLoRA:
		dst = appendText(dst, e.LoRA)
	case storedExtra:
		dst = append(dst, e.Extra...)
	case storedGroup:
		dst = appendUint(dst, uint64(e.Group))
	case storedKind:
		dst = appendText(dst, e.SpecKind)
	case storedWindow:
		dst = appendInt(dst, e.Window)
	}
	return dst
}

// appendHash writes an integer hash, in 9 bytes unless form.Compact is set.
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
