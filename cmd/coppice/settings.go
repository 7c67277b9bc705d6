package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/internal/bounds"
)

// settings resolves the flags of a server: the command line takes precedence over the
// environment, and that over a JSON file.
type settings struct {
	flags     []*kong.Flag
	names     []string                   // of flags
	sources   map[string]string          // source of each flag's value; none for defaults
	strangers []string                   // environment variables that look like settings but are not
	parts     map[string]json.RawMessage // parts of the file that are not flags
}

const envPrefix = "COPPICE_"

// foreignEnv are environment variables used by other parts of the program and by its tests.
var foreignEnv = []string{"COPPICE_CPU", "COPPICE_TEST_MAIN", "COPPICE_CACHE", "COPPICE_CLIENTS", "COPPICE_MODELS", "COPPICE_PEERS"}

// envName returns the environment variable of a flag: COPPICE_KV_TOKENS for kv-tokens.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// isSet reports whether a flag was set, by any source.
func (s *settings) isSet(flag string) bool { return s.sources[flag] != "" }

// section parses a part of the file that is not a flag. It returns false for an unknown
// key.
type section func(key string, raw json.RawMessage) (bool, error)

// resolve sets the flags not on the command line from the environment, else from the file.
// more parses the parts of the file that are not flags.
func (s *settings) resolve(ctx *kong.Context, more section) error {
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
	for _, f := range node.Flags {
		s.names = append(s.names, f.Name)
	}
	s.findStrangers(s.names, os.Environ())
	if path == "" {
		path = os.Getenv(envName("config"))
	}
	s.parts = map[string]json.RawMessage{}
	file, err := readSettings(path, node.Name, s.names, func(key string, raw json.RawMessage) (taken bool, err error) {
		if taken, err = more(key, raw); taken {
			s.parts[key] = raw
		}
		return taken, err
	})
	if err != nil {
		return unread("--config", path, err)
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

// findStrangers records the variables in environ, a list of NAME=value, that may be mistyped
// settings: they begin like settings but belong to none of flags. They are not errors, because
// some platforms set variables named after services.
func (s *settings) findStrangers(flags, environ []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(foreignEnv, name) &&
			!slices.ContainsFunc(flags, func(f string) bool { return envName(f) == name }) {
			s.strangers = append(s.strangers, name)
		}
	}
	slices.Sort(s.strangers)
}

// warn logs the variables found by findStrangers.
func (s *settings) warn(log *zap.Logger) {
	for _, name := range s.strangers {
		flag := nearest(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "-")), s.names)
		if flag != "" {
			flag = envName(flag)
		}
		log.Warn("environment variable is not a setting", zap.String("name", name), zap.String("nearest", flag))
	}
}

// readSettings reads a file of settings and returns the values by the names in flags, as text; nil
// if path is empty. command is for messages. A key that is neither a flag nor known to more is an
// error.
func readSettings(path, command string, flags []string, more section) (map[string]string, error) {
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
	var faults bounds.Faults
	for _, key := range slices.Sorted(maps.Keys(all)) {
		raw, name := all[key], strings.ReplaceAll(key, "_", "-")
		taken, err := more(name, raw)
		switch {
		case taken:
		case name == "config" || name == "print-config" || !slices.Contains(flags, name):
			err = fmt.Errorf("there is no such setting%s; coppice %s --help lists them", didYouMean(name, flags), command)
		case values[name] != "":
			err = fmt.Errorf("given twice")
		default:
			values[name], err = plainText(raw)
		}
		faults.If(err != nil, "%q: %w", key, err)
	}
	return values, faults.Err()
}

// plainText returns a JSON string, number or boolean in the form of a flag's value.
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

// strict decodes data, a single JSON value, into to. Unknown keys, and anything after the value,
// are errors.
func strict(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))) // without a byte order mark
	d.DisallowUnknownFields()
	kind := (*json.UnmarshalTypeError)(nil)
	switch err := d.Decode(to); {
	case err == io.EOF:
		return errors.New("it is empty, want a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends inside the JSON object")
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("it is a JSON %s, want an object", kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("%q can't be a JSON %s", kind.Field, kind.Value) // without the Go type, which means nothing to users
	case err != nil:
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text follows the object; want one object")
	}
	return nil
}
