package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/events/eventurl"
)

// printMode is the form of --print-config: "" for none, a table with the source of each
// setting, or a file for --config.
type printMode string

const (
	asTable printMode = "table"
	asJSON  printMode = "json"
)

// Decode parses the flag; without a value it means the table.
func (m *printMode) Decode(ctx *kong.DecodeContext) error {
	text := "true"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		text = fmt.Sprint(ctx.Scan.Pop().Value)
	}
	switch text {
	case "true", "1", string(asTable):
		*m = asTable
	case string(asJSON):
		*m = asJSON
	case "false", "0":
		*m = ""
	default:
		return fmt.Errorf("%.40q is not a form; want table or json", text)
	}
	return nil
}

// IsBool tells kong that the flag may have no value.
func (*printMode) IsBool() bool { return true }

// print prints the settings in a form. more adds lines to the table.
func (s *settings) print(w io.Writer, mode printMode, more func(io.Writer)) error {
	if mode == asJSON {
		return s.json(w)
	}
	return s.table(w, more)
}

// printed returns the flags that are settings.
func (s *settings) printed() []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(s.flags), func(f *kong.Flag) bool {
		return f.Name == "help" || f.Name == "version" || f.Name == "print-config"
	})
}

// secret reports whether a flag's value must not be shown. Those of --tls-key and --kv-key are names of files.
func secret(f *kong.Flag) bool {
	return strings.HasSuffix(f.Name, "-key") && f.Name != "tls-key" && f.Name != "kv-key"
}

// table prints each setting with its value and source, then the lines of more.
func (s *settings) table(w io.Writer, more func(io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, f := range s.printed() {
		source := s.sources[f.Name]
		if source == "" {
			source = "default"
		}
		value := shown(f)
		switch {
		case secret(f) && value != "":
			value = "(secret)"
		case value == "":
			value = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, value, source)
	}
	if more != nil {
		more(t)
	}
	return t.Flush()
}

// json writes a file for --config with the settings that were given, without defaults, keys
// and passwords.
func (s *settings) json(w io.Writer) error {
	file := map[string]any{}
	for name, part := range s.parts {
		file[name] = part
	}
	for _, f := range s.printed() {
		if !s.isSet(f.Name) || f.Name == "config" || secret(f) {
			continue
		}
		switch f.Target.Kind() {
		case reflect.Bool, reflect.Int, reflect.Uint64, reflect.Float64:
			file[f.Name] = f.Target.Interface()
		default:
			file[f.Name] = shown(f)
		}
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// shown returns a flag's value in the form of the command line, without passwords.
func shown(f *kong.Flag) string {
	switch v := f.Target.Interface().(type) {
	case []string:
		return eventurl.RedactAll(v)
	case string:
		if strings.Contains(v, ":") { // otherwise it is not a URL: a path may contain @
			return eventurl.Redact(v)
		}
	case map[string]float64:
		return pairs(v)
	}
	return fmt.Sprint(f.Target.Interface())
}

// pairs returns a map in the form of a flag's value: "a=1;b=2", keys sorted.
func pairs(all map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, fmt.Sprintf("%s=%v", name, all[name]))
	}
	return strings.Join(parts, ";")
}
