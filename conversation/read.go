package conversation

import "github.com/coppice-llm/coppice/internal/jsonbody"

// Limits of stop strings.
const (
	MaxStops = 16
	// MaxStopBytes covers all stop strings together: the automaton that finds them takes up to 512 times
	// as much memory, per prompt.
	MaxStopBytes = 1024
)

// ReadStops reads stop strings: a string, of which "" is none, or a list of at most MaxStops.
func ReadStops(d *jsonbody.Decoder, v jsonbody.Value) (stops []string) {
	if v.Raw[0] == '"' {
		if s := d.Text(v); s != "" { // some clients send "" for none
			stops = []string{s}
		}
	} else {
		if v.Raw[0] != '[' {
			d.Want(v, "a string or an array of strings")
		}
		stops = d.Texts(v, MaxStops)
	}
	n := 0
	for i, s := range stops {
		if n += len(s); s == "" {
			d.Fail(v.Index(i), "invalid_value", "%s is empty: the output would end before it began", v.Index(i))
		}
	}
	if n > MaxStopBytes {
		d.Fail(v, "invalid_value", "%s has %d bytes, want at most %d", v, n, MaxStopBytes)
	}
	return stops
}

// ReadTool reads a tool in the form that chat templates get: {"type": "function", "function": {"name",
// "description", "parameters", "strict"}}.
func ReadTool(d *jsonbody.Decoder, v jsonbody.Value) Tool {
	var kind string
	var function jsonbody.Value
	d.Fields(v, "tools[].", map[string]func(jsonbody.Value){
		"type":     func(v jsonbody.Value) { kind = d.OneOf(v, "function") },
		"function": func(v jsonbody.Value) { function = v },
	})
	switch {
	case kind == "":
		d.Missing(v.At("type"))
	case function.Raw == nil:
		d.Missing(v.At("function"))
	}
	return readFunction(d, function)
}

// readFunction reads {"name", "description", "parameters", "strict"}.
func readFunction(d *jsonbody.Decoder, v jsonbody.Value) (t Tool) {
	d.Fields(v, "tools[].function.", map[string]func(jsonbody.Value){
		"name":        func(v jsonbody.Value) { t.Name = d.Label(v, "") },
		"description": func(v jsonbody.Value) { d.Text(v) },
		"parameters": func(v jsonbody.Value) {
			d.Object(v, "a JSON schema, which is an object")
			t.Parameters = v.Raw
		},
		"strict": func(v jsonbody.Value) { d.Flag(v) }, // a forced call always follows the schema
	})
	if t.Name == "" {
		d.Missing(v.At("name"))
	}
	return t
}
