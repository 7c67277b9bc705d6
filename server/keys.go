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

// Key lets its holder in. Several may name one tenant.
type Key struct {
	Secret string // what follows "Bearer "; it is not kept
	Tenant string
	// Admin may flush and pin, see the text of what is cached, and profile.
	Admin bool
}

// String leaves the secret out, for logs.
func (k Key) String() string { return fmt.Sprintf("key of tenant %q, admin %v", k.Tenant, k.Admin) }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// leastSecret is as many characters as a secret has at least.
const leastSecret = 8

func validateKeys(keys []Key) error {
	var errs []error
	seen := make(map[string]int, len(keys))
	for i, k := range keys {
		switch {
		case k.Tenant == "":
			errs = append(errs, fmt.Errorf("server: Keys[%d].Tenant is empty, give it a name", i))
		case !utf8.ValidString(k.Tenant): // no metric could be called so
			errs = append(errs, fmt.Errorf("server: Keys[%d].Tenant is %q, which is not UTF-8", i, k.Tenant))
		case len(k.Secret) < leastSecret:
			errs = append(errs, fmt.Errorf("server: Keys[%d].Secret, of %q, has %d characters, want at least %d", i, k.Tenant, len(k.Secret), leastSecret))
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

// holder is who asks.
type holder struct {
	tenant string
	admin  bool
	meter  *tenantMeter
}

// keyring finds the holder of a secret. It is constant.
type keyring struct {
	sums    [][sha256.Size]byte
	holders []*holder // of each sum
	anybody *holder   // without keys
}

// newKeyring has each tenant measured by what meter gives.
func newKeyring(keys []Key, meter func(tenant string) *tenantMeter) *keyring {
	if len(keys) == 0 {
		return &keyring{anybody: &holder{admin: true, meter: meter("")}}
	}
	r := &keyring{}
	for _, k := range keys {
		r.sums = append(r.sums, sha256.Sum256([]byte(k.Secret)))
		r.holders = append(r.holders, &holder{tenant: k.Tenant, admin: k.Admin, meter: meter(k.Tenant)})
	}
	return r
}

var (
	errNoKey    = openai.NewError(http.StatusUnauthorized, "missing_api_key", "this server wants an API key: send the header Authorization: Bearer <key>")
	errWrongKey = openai.NewError(http.StatusUnauthorized, "invalid_api_key", "the API key is not known here")
	errNoAdmin  = openai.NewError(http.StatusForbidden, "admin_only", "this is for keys of admins")
)

// find says who asks. How long it takes tells nothing of the keys: all of them are
// compared, by their hashes.
func (k *keyring) find(r *http.Request) (*holder, error) {
	if k.anybody != nil {
		return k.anybody, nil
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

// Keyring finds out whose key a request has, for another server in front of this one.
type Keyring struct{ ring *keyring }

// NewKeyring reports all faults of keys at once. Without keys anybody may do everything.
func NewKeyring(keys []Key) (*Keyring, error) {
	if err := validateKeys(keys); err != nil {
		return nil, err
	}
	return &Keyring{newKeyring(keys, func(string) *tenantMeter { return nil })}, nil
}

// Find is on whose account a request comes. The error is an *openai.Error.
func (k *Keyring) Find(r *http.Request) (tenant string, admin bool, err error) {
	h, err := k.ring.find(r)
	if err != nil {
		return "", false, err
	}
	return h.tenant, h.admin, nil
}
