package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/internal/bounds"
	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/server"
)

// serveSettings are the settings of serve, with the parts of its file that are not flags.
type serveSettings struct {
	settings
	tenant  scheduler.TenantConfig
	tenants map[string]scheduler.TenantConfig
	quotas  map[string]cacheQuota // by tenant
}

// BeforeResolve is called by kong after it has read the flags.
func (c *serveCmd) BeforeResolve(ctx *kong.Context) error {
	return c.settings.resolve(ctx, c.settings.section)
}

// section parses the limits of tenants; it implements the type section.
func (s *serveSettings) section(key string, raw json.RawMessage) (bool, error) {
	var err error
	switch key {
	case "tenant":
		if s.tenant, _, err = tenantLimits(raw, false); err != nil {
			return true, err
		}
	case "tenants":
		err = s.readTenants(raw)
	default:
		return false, nil
	}
	return true, err
}

// readTenants parses the limits of named tenants and reports all faults at once.
func (s *serveSettings) readTenants(raw json.RawMessage) error {
	all := map[string]json.RawMessage{}
	if err := strict(raw, &all); err != nil {
		return err
	}
	s.tenants, s.quotas = map[string]scheduler.TenantConfig{}, map[string]cacheQuota{}
	var faults bounds.Faults
	for _, name := range slices.Sorted(maps.Keys(all)) {
		limits, cached, err := tenantLimits(all[name], true)
		faults.If(err != nil, "%q: %w", name, err)
		s.tenants[name] = limits
		if cached != (cacheQuota{}) {
			s.quotas[name] = cached
		}
	}
	return faults.Err()
}

// cacheQuota bounds the cached tokens of a tenant. The tenant may have at most as many cached
// tokens as most says. Of its cached tokens, as many as least says stay while other tenants have
// evictable tokens. 0 means no bound.
type cacheQuota struct{ most, least int }

// tenantLimits parses the limits of a tenant. Only a named tenant may have a cache quota.
func tenantLimits(raw json.RawMessage, named bool) (_ scheduler.TenantConfig, cached cacheQuota, err error) {
	var v struct {
		MaxQueued   int `json:"max-queued"`
		MaxRunning  int `json:"max-running"`
		Weight      int `json:"weight"`
		CacheTokens int `json:"cache-tokens"`
		MinTokens   int `json:"cache-min-tokens"`
	}
	err = strict(raw, &v)
	switch {
	case v.CacheTokens < 0:
		err = errors.Join(err, fmt.Errorf("cache-tokens is %d, want 0 (no bound) or more", v.CacheTokens))
	case v.MinTokens < 0 || v.CacheTokens > 0 && v.MinTokens > v.CacheTokens:
		err = errors.Join(err, fmt.Errorf("cache-min-tokens is %d, want 0 or more, and no more than cache-tokens, %d", v.MinTokens, v.CacheTokens))
	case (v.CacheTokens > 0 || v.MinTokens > 0) && !named:
		err = errors.Join(err, errors.New("cache-tokens and cache-min-tokens are for tenants by name"))
	}
	return scheduler.TenantConfig{MaxQueued: v.MaxQueued, MaxRunning: v.MaxRunning, Weight: v.Weight}, cacheQuota{v.CacheTokens, v.MinTokens}, err
}

// printTenants lists the limits of tenants.
func (s *serveSettings) printTenants(w io.Writer) {
	print := func(name string, c scheduler.TenantConfig) {
		cached := ""
		q := s.quotas[strings.TrimPrefix(name, "tenants.")]
		if q.most > 0 {
			cached = fmt.Sprintf(", cache-tokens %d", q.most)
		}
		if q.least > 0 {
			cached += fmt.Sprintf(", cache-min-tokens %d", q.least)
		}
		fmt.Fprintf(w, "%s\tmax-queued %d, max-running %d, weight %d%s\t%s\n", name, c.MaxQueued, c.MaxRunning, max(c.Weight, 1), cached, "file")
	}
	if s.tenant != (scheduler.TenantConfig{}) {
		print("tenant", s.tenant)
	}
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		print("tenants."+name, s.tenants[name])
	}
}

// readKeys returns the API keys: the single key of --api-key, which is an admin's, or those
// of a file; none if neither is given.
func readKeys(key, file string) ([]server.Key, error) {
	if key != "" && file != "" {
		return nil, errors.New("--api-key and --api-key-file: give one of them")
	}
	if key != "" {
		return []server.Key{{Secret: key, Tenant: "default", Admin: true}}, nil
	}
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, unread("--api-key-file", file, err)
	}
	keys, err := parseKeys(string(data))
	if err != nil {
		return nil, fmt.Errorf("--api-key-file %s: %w", file, err)
	}
	return keys, nil
}

// parseKeys parses lines such as "acme: secret admin". Empty lines and lines that begin
// with # are skipped. Errors do not quote lines, which hold secrets.
func parseKeys(text string) ([]server.Key, error) {
	var keys []server.Key
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") { // without a byte order mark
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		tenant, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		tenant = strings.TrimSpace(tenant)
		if !ok || tenant == "" || len(words) == 0 || len(words) > 2 || len(words) == 2 && words[1] != "admin" {
			return nil, fmt.Errorf("line %d is not like \"tenant: key\" or \"tenant: key admin\"", i+1)
		}
		keys = append(keys, server.Key{Secret: words[0], Tenant: tenant, Admin: len(words) == 2})
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no keys: every request would be refused")
	}
	return keys, nil
}

// byteSize is a flag for a number of bytes, such as 4GiB.
type byteSize int64

var byteUnits = []struct {
	name string
	size float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// UnmarshalText parses a number and a unit: B, KB, MB, GB, TB or KiB, MiB, GiB, TiB.
func (b *byteSize) UnmarshalText(text []byte) error {
	s := string(text)
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v >= 0 && v*u.size < math.MaxInt64) {
			break
		}
		*b = byteSize(v * u.size)
		return nil
	}
	return fmt.Errorf("%q is not a size; want one like 4GiB or 500MB", s)
}

// String returns the size as a whole number of the largest binary unit that divides it.
func (b byteSize) String() string {
	for i := 3; i >= 0; i-- {
		if size := byteSize(byteUnits[i].size); b >= size && b%size == 0 {
			return fmt.Sprintf("%d%s", int64(b/size), byteUnits[i].name)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}
