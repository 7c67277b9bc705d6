package record

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/coppice-llm/coppice/mempool"
)

// MinSecretBytes is the least length of a secret, the length of the keys derived from it.
const MinSecretBytes = 32

// Sealer encrypts and authenticates records by AES-256-GCM, and hides their names. All keys are
// derived from secrets by HKDF-SHA-256. The first secret seals; every secret opens, so that a
// secret can be replaced without losing what it sealed.
//
// Each record has a key of its own, derived from the secret's key and a random salt of 32 bytes,
// which is new at each write. So no nonce is used twice with a key, however often a slot is
// rewritten and however many processes share a secret: after 2^64 records the probability that
// two have equal salts is 2^-129.
//
// A Sealer is immutable and may be used from any goroutine.
type Sealer struct {
	random io.Reader
	keys   []sealKey
}

// sealKey has what is derived from one secret.
type sealKey struct {
	id         string // hexadecimal; names the secret in records and directories
	seal, name []byte
}

const (
	keyIDBytes = 8
	tagBytes   = 16
)

// NewSealer returns a Sealer with the given secrets, of which it keeps no reference. random must be
// crypto/rand.Reader, except in tests that compare bytes. It fails if there is no secret, or a
// secret is shorter than MinSecretBytes or given twice.
func NewSealer(random io.Reader, secrets ...[]byte) (*Sealer, error) {
	s := &Sealer{random: random}
	for i, secret := range secrets {
		if len(secret) < MinSecretBytes {
			return nil, fmt.Errorf("record: secret %d has %d bytes, want at least %d", i+1, len(secret), MinSecretBytes)
		}
		prk, err := hkdf.Extract(sha256.New, secret, nil)
		if err != nil {
			return nil, err
		}
		var k sealKey
		id, errID := hkdf.Expand(sha256.New, prk, "coppice record key id 1", keyIDBytes)
		seal, errSeal := hkdf.Expand(sha256.New, prk, "coppice record seal 1", sha256.Size)
		name, errName := hkdf.Expand(sha256.New, prk, "coppice record name 1", sha256.Size)
		if err := errors.Join(errID, errSeal, errName); err != nil {
			return nil, err
		}
		k.id, k.seal, k.name = hex.EncodeToString(id), seal, name
		if _, twice := s.key(id); twice {
			return nil, fmt.Errorf("record: secret %d is given twice", i+1)
		}
		s.keys = append(s.keys, k)
	}
	if len(s.keys) == 0 {
		return nil, errors.New("record: no secret is given")
	}
	return s, nil
}

// Check returns an error if s is missing for an identity of sealed records, or given for another.
func (s *Sealer) Check(id *mempool.Identity) error {
	if id.Sealed != (s != nil) {
		return fmt.Errorf("record: Identity.Sealed is %v, and that a Sealer is given is %v; want both or none", id.Sealed, s != nil)
	}
	return nil
}

// IDs returns the ids of the secrets: keyed hashes of a constant, which reveal nothing of them. The
// first is that of the secret that seals. A nil Sealer has none.
func (s *Sealer) IDs() (ids []string) {
	if s != nil {
		for i := range s.keys {
			ids = append(ids, s.keys[i].id)
		}
	}
	return ids
}

// String returns the ids, so that no log shows a key.
func (s *Sealer) String() string { return fmt.Sprint(s.IDs()) }

// key returns the key with an id.
func (s *Sealer) key(id []byte) (*sealKey, bool) {
	for i := range s.keys {
		if s.keys[i].id == hex.EncodeToString(id) {
			return &s.keys[i], true
		}
	}
	return nil, false
}

// aead returns the cipher of one record or file, which has this salt.
func (k *sealKey) aead(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, k.seal, string(salt), sha256.Size)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Nonces of the pieces that are sealed with the cipher of one record or file.
var (
	headNonce  = make([]byte, 12)
	pagesNonce = append(make([]byte, 11), 1)
)

// A sealed header, or another sealed file, begins with these bytes in clear text. They are also the
// additional data of everything sealed with its salt.
//
//	[0, 8)    magic              [16, 32)  fingerprint
//	[8, 12)   version            [32, 40)  id of the secret
//	[12, 16)  zero               [40, 72)  salt
//
// A sealed record has the header of an unsealed one after that, padded with zeros to a constant
// length, so that no length shows. The tag follows it, and at the end of HeaderBytes the XXH3-64 of
// all bytes of the header before it: it needs no secret, so that a damaged record is not taken
// for one of another secret. The pages have the same salt, hence the same cipher, and their tag
// follows them. So header and pages of two records can't be combined.
const (
	sealedRecord = "CPPCKVS\n"
	sealedIndex  = "CPPCKVJ\n"
	sealedFixed  = 72
	sealedBytes  = sealedFixed + tagBytes + 8 // of a sealed header in addition to an unsealed one
)

// begin writes the clear part of a sealed file to b, and returns the file's cipher.
func (f *Format) begin(b []byte, magic string) (cipher.AEAD, error) {
	k := &f.Sealer.keys[0]
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], mempool.RecordVersion)
	binary.LittleEndian.PutUint32(b[12:], 0)
	copy(b[16:], f.Fingerprint[:])
	if _, err := hex.Decode(b[32:40], []byte(k.id)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(f.Sealer.random, b[40:sealedFixed]); err != nil {
		return nil, fmt.Errorf("record: sealing a record: %w", err)
	}
	return k.aead(b[40:sealedFixed])
}

// cipherOf returns the cipher of a sealed file whose clear part is b. It fails with mempool.ErrForeign for
// another version or secret.
func (f *Format) cipherOf(b []byte) (cipher.AEAD, error) {
	if v := binary.LittleEndian.Uint32(b[8:]); v != mempool.RecordVersion {
		return nil, fmt.Errorf("%w: version %d, not %d", mempool.ErrForeign, v, mempool.RecordVersion)
	}
	k, ok := f.Sealer.key(b[32:40])
	if !ok {
		return nil, fmt.Errorf("%w: sealed with the key %x, not %v", mempool.ErrForeign, b[32:40], f.Sealer)
	}
	return k.aead(b[40:sealedFixed])
}

// seal seals the record in buf, whose unsealed header begins at sealedFixed.
func (f *Format) seal(buf []byte, payload int) error {
	aead, err := f.begin(buf, sealedRecord)
	if err != nil {
		return err
	}
	head, bound := f.HeaderBytes(), buf[:sealedFixed]
	aead.Seal(buf[sealedFixed:sealedFixed], headNonce, buf[sealedFixed:head-tagBytes-8], bound)
	binary.LittleEndian.PutUint64(buf[head-8:], xxh3.Hash(buf[:head-8]))
	aead.Seal(buf[head:head], pagesNonce, buf[head:head+payload], bound)
	return nil
}

// openHeader opens the sealed header at the beginning of b. Its errors are those of ParseHeader. The
// cipher opens the pages.
func (f *Format) openHeader(b []byte) (r Record, aead cipher.AEAD, err error) {
	head := f.HeaderBytes()
	if len(b) < head {
		return r, nil, fmt.Errorf("%w: a header of %d bytes", mempool.ErrCorrupt, len(b))
	}
	b = b[:head]
	switch magic := string(b[:8]); {
	case magic == recordMagic:
		return r, nil, fmt.Errorf("%w: the record is not sealed", mempool.ErrForeign)
	case magic != sealedRecord && bytes.Count(b[:recordFixed], []byte{0}) == recordFixed:
		return r, nil, mempool.ErrMiss
	case magic != sealedRecord:
		return r, nil, fmt.Errorf("%w: no sealed record begins with %q", mempool.ErrCorrupt, magic)
	case binary.LittleEndian.Uint64(b[head-8:]) != xxh3.Hash(b[:head-8]):
		return r, nil, fmt.Errorf("%w: wrong checksum of the header", mempool.ErrCorrupt)
	}
	if aead, err = f.cipherOf(b); err != nil {
		return r, nil, err
	}
	plain, err := aead.Open(nil, headNonce, b[sealedFixed:head-8], b[:sealedFixed])
	if err != nil {
		return r, nil, fmt.Errorf("%w: the header was not sealed with the key %x, or was changed", mempool.ErrCorrupt, b[32:40])
	}
	inner := f.Unsealed()
	r, err = inner.ParseHeader(plain)
	return r, aead, err
}

// openPages opens the pages of r in place. buf has the record's bytes.
func (f *Format) openPages(buf []byte, aead cipher.AEAD, r *Record) error {
	head := f.HeaderBytes()
	pages := buf[head : head+r.PayloadBytes+tagBytes]
	if _, err := aead.Open(pages[:0], pagesNonce, pages, buf[:sealedFixed]); err != nil {
		return fmt.Errorf("%w: the pages of %s are not those that were sealed", mempool.ErrCorrupt, r.Key.Short())
	}
	return nil
}

// Unsealed returns the format without its Sealer.
func (f *Format) Unsealed() Format { return Format{Fingerprint: f.Fingerprint, Layout: f.Layout} }

// SealIndex returns b sealed, for a file that describes all records that can be opened. Only a Sealer
// with the same secrets opens it, since others open other records. Without a Sealer it returns b
// itself.
func (f *Format) SealIndex(b []byte) ([]byte, error) {
	if f.Sealer == nil {
		return b, nil
	}
	sealed := make([]byte, sealedFixed, sealedFixed+len(b)+tagBytes)
	aead, err := f.begin(sealed, sealedIndex)
	if err != nil {
		return nil, err
	}
	return aead.Seal(sealed, headNonce, b, f.indexData(sealed)), nil
}

// OpenIndex returns the bytes that were given to SealIndex. Errors: mempool.ErrForeign, mempool.ErrCorrupt.
func (f *Format) OpenIndex(b []byte) ([]byte, error) {
	if f.Sealer == nil {
		return b, nil
	}
	if len(b) < sealedFixed || string(b[:8]) != sealedIndex || !bytes.Equal(b[16:32], f.Fingerprint[:]) {
		return nil, fmt.Errorf("%w: no sealed index", mempool.ErrCorrupt)
	}
	aead, err := f.cipherOf(b)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, headNonce, b[sealedFixed:], f.indexData(b[:sealedFixed]))
	if err != nil {
		return nil, fmt.Errorf("%w: the index was changed, or sealed with other secrets", mempool.ErrCorrupt)
	}
	return plain, nil
}

// indexData returns the additional data of an index whose clear part is b.
func (f *Format) indexData(b []byte) []byte {
	return slices.Concat(b, []byte(f.Sealer.String()))
}

// Name names the record of an extent where names can be seen, such as in a shared directory: the
// extent's Key, or with a Sealer a keyed hash of it: a guess of a prompt can't be tested by its name
// without the secret.
type Name mempool.Key

// String returns the name in hexadecimal.
func (n Name) String() string { return mempool.Key(n).String() }

// Named reports whether a record of k may have the name n.
func (f *Format) Named(k mempool.Key, n Name) bool {
	for name := range f.Names(k) {
		if name == n {
			return true
		}
	}
	return false
}

// Names yields the names that a record of k may have: first that of new records, then those under
// earlier secrets.
func (f *Format) Names(k mempool.Key) iter.Seq[Name] {
	return func(yield func(Name) bool) {
		if f.Sealer == nil {
			yield(Name(k))
			return
		}
		for i := range f.Sealer.keys {
			h := hmac.New(sha256.New, f.Sealer.keys[i].name)
			h.Write(k[:])
			if !yield(Name(h.Sum(nil))) {
				return
			}
		}
	}
}
