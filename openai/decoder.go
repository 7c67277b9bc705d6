package openai

import (
	"bytes"
	"math"

	"github.com/coppice-llm/coppice/internal/jsonbody"
	"github.com/coppice-llm/coppice/kv"
)

type (
	value   = jsonbody.Value
	field   = jsonbody.Field
	scanner = jsonbody.Scanner
	place   = jsonbody.Place
	param   = jsonbody.Param
)

// decoder decodes JSON values into Go types, among them lists of token ids.
type decoder struct {
	jsonbody.Decoder

	// For a proxy, see promptsAt.
	ids  []kv.Token // memory for the tokens of the first prompt
	most int        // most tokens of the first prompt to keep
	cut  bool       // the prompt has more
}

// newDecoder returns a decoder for a server.
func newDecoder(unknowns UnknownFields) *decoder {
	return &decoder{Decoder: jsonbody.Decoder{Ignores: unknowns.Ignores, Kept: make([]field, 0, 24)}}
}

// tokens reads an array of token ids. It fails for an array of more ids than most says. Whether the
// vocabulary has the ids is checked later, by Fits.
func (d *decoder) tokens(v value, most int) []kv.Token {
	if v.Raw[0] != '[' {
		d.Want(v, "an array of token ids")
		return nil
	}
	s := scanner{B: v.Raw, At: 1}
	return d.idsAt(&s, v, d.room(v, most), most)
}

// room returns an empty slice with memory for the ids of the array v. v.Raw begins with the array,
// but may be longer. most is the limit on the number of ids.
func (d *decoder) room(v value, most int) []kv.Token {
	if d.Lenient {
		return d.ids
	}
	return make([]kv.Token, 0, min(bytes.Count(v.Raw, []byte{','})+1, most))
}

// idsAt appends the ids of the array v to dst and moves s, which is after the array's opening
// bracket, past the array. If the array has more ids than most says, it fails, or for a
// proxy sets d.cut. The result is never nil.
func (d *decoder) idsAt(s *scanner, v value, dst []kv.Token, most int) []kv.Token {
	dst, truncated, odd := scanIDs(s, dst, most)
	switch {
	case len(odd) > 0:
		d.Integer(value{Raw: odd, Top: v.Top}, 0, math.MaxUint32)
	case truncated && d.Lenient:
		d.cut = true
	case truncated:
		d.Fail(v, "invalid_value", "%s has over %d token ids", v, most)
	}
	if dst == nil {
		dst = []kv.Token{}
	}
	return dst
}
