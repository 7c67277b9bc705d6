package record

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

const (
	recordMagic = "CPPCKVX\n"
	recordFixed = 152  // bytes of a header before the strings
	recordAlign = 4096 // of header and pages: the alignment that direct I/O needs on nearly every system
)

// Format is a store's form of records: a header, padded to HeaderBytes, then the pages.
//
//	[0, 8)      magic            [104, 112)  Start
//	[8, 12)     version          [112, 116)  pages
//	[12, 16)    header's length  [116, 120)  bytes of a page
//	[16, 32)    fingerprint      [120, 128)  bytes of all pages
//	[32, 40)    sequence number  [128, 136)  Sum of the pages
//	[40, 72)    key              [136, 144)  lengths: model, LoRA, salt; media (u16 each)
//	[72, 104)   parent           [144, 152)  number of tokens
//
// From 152 on: the three strings, tokens (u32), media (At, Tokens, Hash: u64 each), and
// the XXH3-64 of all header bytes before it. Numbers are little-endian. A Sealer encrypts header
// and pages; seal.go has that form.
type Format struct {
	Fingerprint mempool.Fingerprint
	Layout      mempool.Layout
	Sealer      *Sealer // nil: records are not sealed
}

// FormatOf returns the format of the records of a store with this identity. s must be nil unless
// id.Sealed.
func FormatOf(id *mempool.Identity, s *Sealer) Format { return Format{id.Fingerprint(), id.Layout, s} }

// Record is an extent in a store.
type Record struct {
	mempool.Extent
	Seq          uint64 // ascending in the order of writing, in one store
	PayloadBytes int
	PayloadSum   uint64 // checksum.Sum of the pages
}

// HeaderBytes returns the bytes that every header takes in a store: the longest header,
// rounded up to a multiple of 4096. For extents of 256 tokens the longest header has
// 152 + 1024 + 24·64 + 4·256 + 8 = 3,744 bytes, so HeaderBytes is 4,096.
func (f *Format) HeaderBytes() int {
	most := recordFixed + mempool.MaxNamespaceBytes + 24*mempool.MaxExtentMedia + 4*f.Layout.ExtentTokens() + 8
	if f.Sealer != nil {
		most += sealedBytes
	}
	return roundUp(most, recordAlign)
}

// RecordBytes returns the bytes that a header and a payload take in a store, a multiple of 4096.
func (f *Format) RecordBytes(payload int) int {
	if f.Sealer != nil {
		payload += tagBytes
	}
	return f.HeaderBytes() + roundUp(payload, recordAlign)
}

// SlotBytes returns the RecordBytes of a full extent.
func (f *Format) SlotBytes() int { return f.RecordBytes(f.Layout.ExtentBytes()) }

// roundUp returns the smallest multiple of the number of that is at least n.
func roundUp(n, of int) int { return (n + of - 1) / of * of }

// Encode makes buf the bytes of r. buf has RecordBytes of the payload, with the pages after
// HeaderBytes. Encode writes the header before them, pads both with zeros, and seals both if the
// format has a Sealer. It fails only if the Sealer's source of random bytes does.
func (f *Format) Encode(buf []byte, r *Record) error {
	head, at := f.HeaderBytes(), 0
	if f.Sealer != nil {
		at = sealedFixed
	}
	clear(buf[head+r.PayloadBytes:])
	n := len(f.AppendHeader(buf[:at], r))
	clear(buf[n:head])
	if f.Sealer == nil {
		return nil
	}
	return f.seal(buf, r.PayloadBytes)
}

// Decode reads the record in buf: its header, and its pages, which it returns as a part of buf. It
// opens sealed pages in place, so that buf can be decoded only once. It does not compare PayloadSum.
// Errors are those of ParseHeader, and mempool.ErrCorrupt if buf is shorter than the record.
func (f *Format) Decode(buf []byte) (r Record, pages []byte, err error) {
	var aead cipher.AEAD
	if f.Sealer != nil {
		r, aead, err = f.openHeader(buf)
	} else {
		r, err = f.ParseHeader(buf)
	}
	if err != nil {
		return r, nil, err
	}
	if n := f.RecordBytes(r.PayloadBytes); len(buf) < n {
		return r, nil, fmt.Errorf("%w: %d bytes of %d", mempool.ErrCorrupt, len(buf), n)
	}
	if aead != nil {
		err = f.openPages(buf, aead, &r)
	}
	head := f.HeaderBytes()
	return r, buf[head : head+r.PayloadBytes], err
}

// AppendHeader returns dst with the unsealed header of r appended, without padding.
func (f *Format) AppendHeader(dst []byte, r *Record) []byte {
	at := len(dst)
	ns := &r.Namespace
	dst = append(dst, recordMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, mempool.RecordVersion)
	length := recordFixed + len(ns.Model) + len(ns.LoRA) + len(ns.Salt) + 4*len(r.Tokens) + 24*len(r.Media) + 8
	dst = binary.LittleEndian.AppendUint32(dst, uint32(length))
	dst = append(dst, f.Fingerprint[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, r.Seq)
	dst = append(dst, r.Key[:]...)
	dst = append(dst, r.Parent[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Start))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(f.Layout.Pages(&r.Extent)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(f.Layout.PageBytes))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.PayloadBytes))
	dst = binary.LittleEndian.AppendUint64(dst, r.PayloadSum)
	for _, n := range [...]int{len(ns.Model), len(ns.LoRA), len(ns.Salt), len(r.Media)} {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(r.Tokens)))
	dst = append(append(append(dst, ns.Model...), ns.LoRA...), ns.Salt...)
	dst = kv.AppendMedia(kv.AppendTokens(dst, r.Tokens), r.Media)
	return binary.LittleEndian.AppendUint64(dst, xxh3.Hash(dst[at:]))
}

// ParseHeader reads a header from the beginning of b, which may be longer than the header.
// Errors: mempool.ErrMiss if b begins with zeros (there is no record), mempool.ErrForeign for another
// version or fingerprint, mempool.ErrCorrupt for wrong bytes. A returned record has lengths that
// agree with the layout, and the key of its contents.
//
// ParseHeader verifies the checksum before it compares the fingerprint, so that damage to
// the fingerprint gives mempool.ErrCorrupt and not mempool.ErrForeign.
func (f *Format) ParseHeader(b []byte) (Record, error) {
	if f.Sealer != nil {
		r, _, err := f.openHeader(b)
		return r, err
	}
	if len(b) < recordFixed+8 {
		return Record{}, fmt.Errorf("%w: a header of %d bytes", mempool.ErrCorrupt, len(b))
	}
	if string(b[:8]) != recordMagic {
		if string(b[:8]) == sealedRecord {
			return Record{}, fmt.Errorf("%w: the record is sealed", mempool.ErrForeign)
		}
		if bytes.Count(b[:recordFixed], []byte{0}) == recordFixed {
			return Record{}, mempool.ErrMiss
		}
		return Record{}, fmt.Errorf("%w: no record begins with %q", mempool.ErrCorrupt, b[:8])
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != mempool.RecordVersion {
		return Record{}, fmt.Errorf("%w: version %d, not %d", mempool.ErrForeign, v, mempool.RecordVersion)
	}
	length := int(binary.LittleEndian.Uint32(b[12:]))
	if length < recordFixed+8 || length > min(len(b), f.HeaderBytes()) {
		return Record{}, fmt.Errorf("%w: a header of %d bytes, at most %d fit", mempool.ErrCorrupt, length, min(len(b), f.HeaderBytes()))
	}
	b = b[:length]
	if sum := binary.LittleEndian.Uint64(b[length-8:]); sum != xxh3.Hash(b[:length-8]) {
		return Record{}, fmt.Errorf("%w: wrong checksum of the header", mempool.ErrCorrupt)
	}
	if !bytes.Equal(b[16:32], f.Fingerprint[:]) {
		return Record{}, fmt.Errorf("%w: fingerprint %x, not %s", mempool.ErrForeign, b[16:32], f.Fingerprint)
	}
	return f.parse(b)
}

// parse reads a header with a correct checksum and fingerprint. A faulty writer may have
// written wrong contents all the same, so parse checks all lengths.
func (f *Format) parse(b []byte) (Record, error) {
	var r Record
	r.Seq = binary.LittleEndian.Uint64(b[32:])
	copy(r.Key[:], b[40:])
	copy(r.Parent[:], b[72:])
	start := binary.LittleEndian.Uint64(b[104:])
	pages, pageBytes := binary.LittleEndian.Uint32(b[112:]), binary.LittleEndian.Uint32(b[116:])
	payload := binary.LittleEndian.Uint64(b[120:])
	r.PayloadSum = binary.LittleEndian.Uint64(b[128:])
	var lens [4]int
	for i := range lens {
		lens[i] = int(binary.LittleEndian.Uint16(b[136+2*i:]))
	}
	tokens := binary.LittleEndian.Uint64(b[144:])
	rest := b[recordFixed : len(b)-8]
	if start > 1<<40 || tokens > mempool.MaxExtentTokens || len(rest) != lens[0]+lens[1]+lens[2]+4*int(tokens)+24*lens[3] {
		return Record{}, fmt.Errorf("%w: wrong lengths in a header", mempool.ErrCorrupt)
	}
	r.Start = int(start)
	for i, s := range [...]*string{&r.Namespace.Model, &r.Namespace.LoRA, &r.Namespace.Salt} {
		*s, rest = string(rest[:lens[i]]), rest[lens[i]:]
	}
	r.Tokens = make([]kv.Token, tokens)
	for i := range r.Tokens {
		r.Tokens[i] = kv.Token(binary.LittleEndian.Uint32(rest[4*i:]))
	}
	rest = rest[4*len(r.Tokens):]
	for ; len(rest) > 0; rest = rest[24:] {
		at, n := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		r.Media = append(r.Media, kv.Media{At: int(at), Tokens: int(n), Hash: binary.LittleEndian.Uint64(rest[16:])})
	}
	if err := f.Layout.Check(&r.Extent); err != nil {
		return Record{}, fmt.Errorf("%w: %v", mempool.ErrCorrupt, err)
	}
	if int(pages) != f.Layout.Pages(&r.Extent) || int(pageBytes) != f.Layout.PageBytes || payload != uint64(f.Layout.Bytes(&r.Extent)) {
		return Record{}, fmt.Errorf("%w: %d pages of %d bytes are recorded as %d bytes", mempool.ErrCorrupt, pages, pageBytes, payload)
	}
	r.PayloadBytes = int(payload)
	return r, nil
}
