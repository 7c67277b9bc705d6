package mempool

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// Key names an extent: the SHA-256 of its parent's key, its namespace, its start, tokens
// and media. Through the parent's key it also depends on everything before the extent. It
// is SHA-256 and not XXH3, because users choose prompts: no user must be able to craft two
// prompts with one key. The zero Key names no extent; it is the Parent of a sequence's
// first extent.
type Key [sha256.Size]byte

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return k == Key{} }

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Short returns the first eight bytes of k in hexadecimal, for logs and errors.
func (k Key) Short() string { return hex.EncodeToString(k[:8]) }

// UnmarshalText sets k from the form that String returns. It fails for another form.
func (k *Key) UnmarshalText(b []byte) error {
	if len(b) != 2*len(k) {
		return fmt.Errorf("mempool: a key has %d hexadecimal digits, not %d", 2*len(k), len(b))
	}
	if _, err := hex.Decode(k[:], b); err != nil {
		return fmt.Errorf("mempool: key %q: %w", b, err)
	}
	return nil
}

// keyDomain is the beginning of the hashed bytes, so that no SHA-256 for another purpose is a
// key.
const keyDomain = "coppice extent 1\x00"

// keyOf hashes the contents of an extent, without its own key. Strings and lists are
// hashed with their lengths, so no two extents give the same bytes.
func keyOf(x *Extent) Key {
	b := make([]byte, 0, len(keyDomain)+len(x.Parent)+64+len(x.Namespace.Model)+len(x.Namespace.LoRA)+len(x.Namespace.Salt)+4*len(x.Tokens)+24*len(x.Media))
	b = append(b, keyDomain...)
	b = append(b, x.Parent[:]...)
	for _, s := range [...]string{x.Namespace.Model, x.Namespace.LoRA, x.Namespace.Salt} {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(x.Start))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(x.Tokens)))
	b = kv.AppendTokens(b, x.Tokens)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(x.Media)))
	b = kv.AppendMedia(b, x.Media)
	return sha256.Sum256(b)
}
