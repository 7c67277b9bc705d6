package mempool

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/coppice-llm/coppice/kv"
)

// PageLayout names the order of the axes in a page, which is the same in all present
// backends. A backend with another order needs another name.
const PageLayout = "layer/kv/head/slot/dim"

// RecordVersion is the version of the form in which stores keep extents.
const RecordVersion = 1

// Identity has everything that must be equal for the bytes of a page to mean the same
// KV.
type Identity struct {
	ModelID    string   `json:"model"`    // hash of config, weights and KV type
	NumericsID string   `json:"numerics"` // changes whenever bits may change
	KVType     kv.DType `json:"kv_type"`
	PageLayout string   `json:"page_layout"` // order of the axes in a page
	Layout     Layout   `json:"layout"`
	Sealed     bool     `json:"sealed,omitempty"` // records are sealed, with the secrets that the store has
}

// Fingerprint names an [Identity]: half a SHA-256 of it and of the version of the format.
type Fingerprint [16]byte

func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Fingerprint returns a hash of id and of the version of the record format. Strings are
// hashed with their lengths, so that two identities never give the same bytes to hash.
func (id *Identity) Fingerprint() Fingerprint {
	b := []byte("coppice identity\x00")
	b = binary.LittleEndian.AppendUint32(b, RecordVersion)
	for _, s := range [...]string{id.ModelID, id.NumericsID, id.KVType.String(), id.PageLayout} {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, n := range [...]int{id.Layout.PageTokens, id.Layout.PageBytes, id.Layout.ExtentPages} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if id.Sealed { // sealed and unsealed records have directories of their own
		b = append(b, "sealed"...)
	}
	sum := sha256.Sum256(b)
	return Fingerprint(sum[:16])
}

// Validate returns an error if a name in id is empty or its layout is invalid, or nil.
func (id *Identity) Validate() error {
	if id.ModelID == "" || id.NumericsID == "" || id.PageLayout == "" {
		return fmt.Errorf("mempool: Identity has model %q, numerics %q, page layout %q; none may be empty", id.ModelID, id.NumericsID, id.PageLayout)
	}
	return id.Layout.Validate()
}
