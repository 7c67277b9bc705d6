package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/openai"
)

// Key admits its holder as a tenant. Several keys may name one tenant.
type Key struct {
	Secret string // the credential after "Bearer "; only its hash is kept
	Tenant string
	// Admin may flush and pin the cache, see cached text, and profile.
	Admin bool
}

// String returns k without its secret, for logs.
func (k Key) String() string { return fmt.Sprintf("key of tenant %q, admin %v", k.Tenant, k.Admin) }

// GoString returns String, so that %#v does not print the secret either.
func (k Key) GoString() string { return k.String() }

// minSecretBytes is the least length of a secret, in bytes.
const minSecretBytes = 8

// validateKeys reports all faults of keys at once, without their secrets. A tenant may have
// several keys, but no two keys may have the same secret.
func validateKeys(keys []Key) error {
	var errs []error
	seen := make(map[string]int, len(keys))
	for i, k := range keys {
		switch {
		case k.Tenant == "":
			errs = append(errs, fmt.Errorf("server: Keys[%d].Tenant is empty, give it a name", i))
		case !utf8.ValidString(k.Tenant): // Prometheus labels must be UTF-8
			errs = append(errs, fmt.Errorf("server: Keys[%d].Tenant is %q, which is not UTF-8", i, k.Tenant))
		case len(k.Secret) < minSecretBytes:
			errs = append(errs, fmt.Errorf("server: Keys[%d].Secret, of %q, has %d characters, want at least %d", i, k.Tenant, len(k.Secret), minSecretBytes))
		case strings.ContainsFunc(k.Secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
			errs = append(errs, fmt.Errorf("server: Keys[%d].Secret, of %q, has characters that a header can't carry", i, k.Tenant))
		}
		if j, ok := seen[k.Secret]; ok && k.Secret != "" {
			errs = append(errs, fmt.Errorf("server: Keys[%d] and Keys[%d], of %q and %q, have the same Secret", j, i, keys[j].Tenant, k.Tenant))
		}
		seen[k.Secret] = i
	}
	return errors.Join(errs...)
}

// holder is the identity of a caller.
type holder struct {
	tenant string
	admin  bool
	meter  *tenantMeter
}

// keyring finds the holder of a secret. It never changes after newKeyring.
type keyring struct {
	sums     [][sha256.Size]byte
	holders  []*holder // holders[i] holds the secret with hash sums[i]
	everyone *holder   // set if there are no keys: every caller
}

// newKeyring makes a keyring. meter returns the meters of a tenant.
func newKeyring(keys []Key, meter func(tenant string) *tenantMeter) *keyring {
	if len(keys) == 0 {
		return &keyring{everyone: &holder{admin: true, meter: meter("")}}
	}
	r := &keyring{}
	for _, k := range keys {
		r.sums = append(r.sums, sha256.Sum256([]byte(k.Secret)))
		r.holders = append(r.holders, &holder{tenant: k.Tenant, admin: k.Admin, meter: meter(k.Tenant)})
	}
	return r
}

var (
	errNoKey    = openai.NewError(http.StatusUnauthorized, "missing_api_key", "this server requires an API key: send the header Authorization: Bearer <key>")
	errWrongKey = openai.NewError(http.StatusUnauthorized, "invalid_api_key", "unknown API key")
	errNoAdmin  = openai.NewError(http.StatusForbidden, "admin_only", "this endpoint requires the key of an admin")
)

// find returns the holder of the request's key, or an error if the key is missing or unknown. It
// compares hashes with all keys in constant time, so that its duration reveals nothing about the
// keys.
func (k *keyring) find(r *http.Request) (*holder, error) {
	if k.everyone != nil {
		return k.everyone, nil
	}
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || secret == "" {
		return nil, errNoKey
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	found := -1
	for i := range k.sums {
		same := subtle.ConstantTimeCompare(sum[:], k.sums[i][:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil, errWrongKey
	}
	return k.holders[found], nil
}

// Keyring finds the tenant of a request's key, for a gateway in front of this server.
type Keyring struct{ ring *keyring }

// NewKeyring returns the Keyring of these keys. It reports all faults of the keys at once. Without
// keys every caller is an admin.
func NewKeyring(keys []Key) (*Keyring, error) {
	if err := validateKeys(keys); err != nil {
		return nil, err
	}
	return &Keyring{newKeyring(keys, func(string) *tenantMeter { return nil })}, nil
}

// Find returns the tenant of the request's key. The error is an *openai.Error.
func (k *Keyring) Find(r *http.Request) (tenant string, admin bool, err error) {
	h, err := k.ring.find(r)
	if err != nil {
		return "", false, err
	}
	return h.tenant, h.admin, nil
}
