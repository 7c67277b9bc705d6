package view

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// Figure is a number, or NaN: null in JSON.
type Figure float64

// MarshalJSON returns the number, or null.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(f), 'f', -1, 64), nil
}

// UnmarshalJSON decodes the result of MarshalJSON.
func (f *Figure) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		*f = Figure(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(f))
}

// Known reports whether f is a number, not NaN.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) }

// encode returns s as JSON. A redacted snapshot contains nothing about single requests: no
// tenants, no prompt lengths, and no tree nodes, because these are parts of prompts. Counts and
// totals stay.
func (s *Snapshot) encode(redacted bool) ([]byte, error) {
	out := *s
	if redacted {
		out.Server.Redacted = true
		out.Tenants, out.Running, out.Waiting, out.Finished, out.Tree.Shown = []Tenant{}, []Running{}, []Waiting{}, []Finished{}, []Node{}
	}
	return json.Marshal(&out)
}
