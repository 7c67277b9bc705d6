package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/conversation"
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

// caller is the identity of a caller.
type caller struct {
	tenant string
	admin  bool
}

// Keyring finds the tenant of a request's key. It never changes after NewKeyring.
type Keyring struct {
	sums    [][sha256.Size]byte
	callers []caller // callers[i] has the secret with hash sums[i]
}

// NewKeyring returns the Keyring of these keys. It reports all faults of the keys at once. Without
// keys every caller is an admin.
func NewKeyring(keys []Key) (*Keyring, error) {
	r := &Keyring{}
	for _, k := range keys {
		r.sums = append(r.sums, sha256.Sum256([]byte(k.Secret)))
		r.callers = append(r.callers, caller{k.Tenant, k.Admin})
	}
	return r, validateKeys(keys)
}

var (
	errNoKey    = conversation.NewError(http.StatusUnauthorized, "missing_api_key", "this server requires an API key: send the header Authorization: Bearer <key>, or X-Api-Key: <key>")
	errWrongKey = conversation.NewError(http.StatusUnauthorized, "invalid_api_key", "unknown API key")
)

// keyHeader is where Anthropic's clients put a key, if they do not send Authorization.
const keyHeader = "X-Api-Key"

// Find returns the tenant of the request's key, or an *conversation.Error if the key is missing or
// unknown. It compares hashes with all keys in constant time, so that its duration reveals nothing
// about the keys.
func (k *Keyring) Find(r *http.Request) (tenant string, admin bool, err error) {
	if len(k.callers) == 0 {
		return "", true, nil
	}
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || secret == "" {
		if secret = r.Header.Get(keyHeader); secret == "" {
			return "", false, errNoKey
		}
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	found := -1
	for i := range k.sums {
		same := subtle.ConstantTimeCompare(sum[:], k.sums[i][:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return "", false, errWrongKey
	}
	return k.callers[found].tenant, k.callers[found].admin, nil
}
