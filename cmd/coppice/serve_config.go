package main

import (
	"bytes"
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
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/scheduler"
	"github.com/coppice-llm/coppice/server"
)

// serveSettings are where the flags of serve have their values from, and what the file
// has beside flags.
type serveSettings struct {
	flags     []*kong.Flag
	sources   map[string]string // of flags; those not in it have their defaults
	strangers []string          // variables that look like settings and are none
	tenant    scheduler.TenantConfig
	tenants   map[string]scheduler.TenantConfig
}

const envPrefix = "COPPICE_"

// foreignEnv are variables of other parts of the program.
var foreignEnv = []string{"COPPICE_CPU", "COPPICE_TEST_MAIN"}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// given tells whether a flag has its value from somewhere.
func (s *serveSettings) given(flag string) bool { return s.sources[flag] != "" }

// BeforeResolve is called by kong when it has read the flags. It has what they lack
// looked for in the environment and then in the file.
func (c *serveCmd) BeforeResolve(ctx *kong.Context) error {
	s := &c.settings
	s.sources = map[string]string{}
	path := ""
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved {
			s.sources[p.Flag.Name] = "flag"
			if p.Flag.Name == "config" {
				path, _ = ctx.FlagValue(p.Flag).(string)
			}
		}
	}
	node := ctx.Selected()
	if node == nil {
		return nil
	}
	s.flags = node.Flags
	names := make([]string, 0, len(node.Flags))
	for _, f := range node.Flags {
		names = append(names, f.Name)
	}
	s.findStrangers(names, os.Environ())
	if path == "" {
		path = os.Getenv(envName("config"))
	}
	file, err := s.readFile(path, names)
	if err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
		if !slices.Contains(node.Flags, f) {
			return nil, nil
		}
		if v, ok := os.LookupEnv(envName(f.Name)); ok {
			s.sources[f.Name] = envName(f.Name)
			return v, nil
		}
		if v, ok := file[f.Name]; ok {
			s.sources[f.Name] = path
			return v, nil
		}
		return nil, nil
	}))
	return nil
}

// findStrangers notes variables that may be mistyped settings. They are no errors, for
// some platforms set variables by the names of services.
func (s *serveSettings) findStrangers(flags, environ []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(foreignEnv, name) &&
			!slices.ContainsFunc(flags, func(f string) bool { return envName(f) == name }) {
			s.strangers = append(s.strangers, name)
		}
	}
	slices.Sort(s.strangers)
}

// readFile reads settings, as texts. A key that is no flag is an error.
func (s *serveSettings) readFile(path string, flags []string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if err := strict(data, &all); err != nil {
		return nil, err
	}
	values := map[string]string{}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(all)) {
		raw, name := all[key], strings.ReplaceAll(key, "_", "-")
		var err error
		switch {
		case name == "tenant":
			s.tenant, err = tenantLimits(raw)
		case name == "tenants":
			err = s.readTenants(raw)
		case name == "config" || name == "print-config" || !slices.Contains(flags, name):
			err = fmt.Errorf("there is no such setting; coppice serve --help lists them")
		case values[name] != "":
			err = fmt.Errorf("given twice")
		default:
			values[name], err = plainText(raw)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", key, err))
		}
	}
	return values, errors.Join(errs...)
}

// plainText is a JSON string, number or boolean as a flag would have it.
func plainText(raw json.RawMessage) (string, error) {
	if raw[0] == '"' {
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	if raw[0] == '{' || raw[0] == '[' || raw[0] == 'n' {
		return "", fmt.Errorf("is %.40s, want a string, a number, true or false", raw)
	}
	return string(raw), nil
}

func (s *serveSettings) readTenants(raw json.RawMessage) error {
	all := map[string]json.RawMessage{}
	if err := strict(raw, &all); err != nil {
		return err
	}
	s.tenants = map[string]scheduler.TenantConfig{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		limits, err := tenantLimits(all[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", name, err))
		}
		s.tenants[name] = limits
	}
	return errors.Join(errs...)
}

func tenantLimits(raw json.RawMessage) (scheduler.TenantConfig, error) {
	var v struct {
		MaxQueued  int `json:"max-queued"`
		MaxRunning int `json:"max-running"`
		Weight     int `json:"weight"`
	}
	err := strict(raw, &v)
	return scheduler.TenantConfig{MaxQueued: v.MaxQueued, MaxRunning: v.MaxRunning, Weight: v.Weight}, err
}

// strict decodes one JSON value whose keys are all known.
func strict(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more follows after the object, want one object")
	}
	return nil
}

// print lists each setting, its value and where that is from.
func (s *serveSettings) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, f := range s.flags {
		if f.Name == "help" || f.Name == "print-config" {
			continue
		}
		source := s.sources[f.Name]
		if source == "" {
			source = "default"
		}
		value := fmt.Sprint(f.Target.Interface())
		switch {
		case f.Name == "api-key" && value != "":
			value = "(secret)"
		case value == "":
			value = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, value, source)
	}
	print := func(name string, c scheduler.TenantConfig) {
		fmt.Fprintf(t, "%s\tmax-queued %d, max-running %d, weight %d\t%s\n", name, c.MaxQueued, c.MaxRunning, max(c.Weight, 1), "file")
	}
	if s.tenant != (scheduler.TenantConfig{}) {
		print("tenant", s.tenant)
	}
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		print("tenants."+name, s.tenants[name])
	}
	return t.Flush()
}

// keys reads who may ask.
func (c *serveCmd) keys() ([]server.Key, error) {
	if c.APIKey != "" {
		return []server.Key{{Secret: c.APIKey, Tenant: "default", Admin: true}}, nil
	}
	if c.APIKeyFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(c.APIKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--api-key-file: %w", err)
	}
	keys, err := parseKeys(string(data))
	if err != nil {
		return nil, fmt.Errorf("--api-key-file %s: %w", c.APIKeyFile, err)
	}
	return keys, nil
}

// parseKeys reads lines like "acme: secret admin". Empty ones, and those that begin with
// # are passed over. Errors do not quote lines: they hold secrets.
func parseKeys(text string) ([]server.Key, error) {
	var keys []server.Key
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") { // a byte order mark is no name
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
		return nil, errors.New("it has no keys: everybody would be refused")
	}
	return keys, nil
}

// byteSize is a number of bytes, as "4GiB".
type byteSize int64

var byteUnits = []struct {
	name string
	size float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// UnmarshalText reads a number and a unit: B, KB, MB, GB, TB or KiB, MiB, GiB, TiB.
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
	return fmt.Errorf("%q is no size, want one like 4GiB or 500MB", s)
}

// String is a whole number of the largest binary unit that gives one.
func (b byteSize) String() string {
	for i := 3; i >= 0; i-- {
		if size := byteSize(byteUnits[i].size); b >= size && b%size == 0 {
			return fmt.Sprintf("%d%s", int64(b/size), byteUnits[i].name)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}
