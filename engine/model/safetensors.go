package model

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/kv"
)

// The safetensors format (huggingface/safetensors, README "Format"): 8 bytes with a length N,
// little-endian; N bytes of JSON {name: {dtype, shape, data_offsets}} with offsets into the data;
// then the data, which the tensors cover without gaps.

const (
	// maxHeaderBytes is the format's own limit for N.
	maxHeaderBytes = 100_000_000
	// maxRank bounds a shape; the supported models' weights have one or two axes.
	maxRank = 8
)

var (
	// ErrFormat is wrapped by errors about damaged files, and files of another format than their
	// name says.
	ErrFormat = gguf.ErrFormat
	// ErrUnsupported is wrapped by errors about valid models that this package can't read.
	ErrUnsupported = gguf.ErrUnsupported
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

var safetensorTypes = map[string]kv.DType{"F32": kv.F32, "F16": kv.F16, "BF16": kv.BF16}

// entry is one tensor of a header.
type entry struct {
	DType   string  `json:"dtype"`
	Shape   numbers `json:"shape"`
	Offsets numbers `json:"data_offsets"`

	name string
}

// numbers is a short list of sizes. A long one is refused before decoding, as it would take
// many times the memory of its text.
type numbers []uint64

// UnmarshalJSON implements json.Unmarshaler.
func (n *numbers) UnmarshalJSON(text []byte) error {
	const most = 2 * maxRank
	if c := bytes.Count(text, []byte(",")); c >= most {
		return fmt.Errorf("a list of %d numbers, at most %d are read", c+1, most)
	}
	return json.Unmarshal(text, (*[]uint64)(n))
}

// parseSafetensors returns the tensors of a whole file in the order of their data. Their Data
// are slices of file; every size and offset is checked.
func parseSafetensors(file []byte) ([]*Tensor, error) {
	if len(file) < 8 {
		return nil, damaged("%d bytes, a safetensors file starts with 8 bytes of header length", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	if n > maxHeaderBytes {
		return nil, damaged("header of %d bytes, at most %d are allowed; is it a safetensors file?", n, maxHeaderBytes)
	}
	if n > uint64(len(file)-8) {
		return nil, damaged("header of %d bytes in a file of %d; the file is cut short, download it again", n, len(file))
	}
	entries, err := parseHeader(file[8 : 8+n])
	if err != nil {
		return nil, err
	}
	return place(entries, file[8+n:])
}

// parseHeader decodes the JSON token by token: a map would hide duplicate names.
func parseHeader(header []byte) ([]entry, error) {
	dec := json.NewDecoder(bytes.NewReader(header))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, damaged("the header is not a JSON object")
	}
	var entries []entry
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, damaged("header: %v", err)
		}
		name := tok.(string) // always a string: in an object, Token fails for other keys
		if seen[name] {
			return nil, damaged("header: %q occurs twice", clip(name))
		}
		seen[name] = true
		if name == "__metadata__" {
			var metadata map[string]string
			if err := dec.Decode(&metadata); err != nil {
				return nil, damaged("header: __metadata__: %s", clip(err.Error()))
			}
			continue
		}
		e := entry{name: name}
		if err := dec.Decode(&e); err != nil {
			return nil, damaged("header: tensor %q: %s", clip(name), clip(err.Error()))
		}
		entries = append(entries, e)
	}
	if _, err := dec.Token(); err != nil {
		return nil, damaged("header: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF { // only white space may follow
		return nil, damaged("header: more follows the JSON object")
	}
	return entries, nil
}

// place assigns each entry its bytes of data. The format requires that the entries cover data
// exactly, so sorted by offset each must begin where the previous one ends.
func place(entries []entry, data []byte) ([]*Tensor, error) {
	for i := range entries {
		if err := entries[i].check(uint64(len(data))); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", clip(entries[i].name), err)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]), cmp.Compare(a.Offsets[1], b.Offsets[1]),
			strings.Compare(a.name, b.name))
	})
	tensors := make([]*Tensor, 0, len(entries))
	end, last := uint64(0), ""
	for _, e := range entries {
		switch {
		case e.Offsets[0] < end:
			return nil, damaged("tensors %q and %q overlap: [%d, %d) begins before %d",
				clip(last), clip(e.name), e.Offsets[0], e.Offsets[1], end)
		case e.Offsets[0] > end:
			return nil, damaged("tensor %q begins at %d, but the one before ends at %d", clip(e.name), e.Offsets[0], end)
		}
		end, last = e.Offsets[1], e.name
		shape := make([]int, len(e.Shape))
		for i, n := range e.Shape {
			shape[i] = int(n) // fits: no axis is 0, so check has bounded each by len(data)
		}
		tensors = append(tensors, &Tensor{
			Name: e.name, DType: safetensorTypes[e.DType], Shape: shape,
			Data: data[e.Offsets[0]:e.Offsets[1]:e.Offsets[1]],
		})
	}
	if end != uint64(len(data)) {
		return nil, damaged("the tensors end at %d of %d bytes", end, len(data))
	}
	return tensors, nil
}

// check validates one entry by itself: a known type, offsets within data, whose length is given in
// bytes, and a length equal to the product of the shape times the size of the type.
func (e *entry) check(data uint64) error {
	dtype, ok := safetensorTypes[e.DType]
	if !ok {
		return unsupported("dtype %q; F32, F16 and BF16 are read, convert the weights to one of them", clip(e.DType))
	}
	if len(e.Offsets) != 2 {
		return damaged("data_offsets %s, want [begin, end]", clip(fmt.Sprint(e.Offsets)))
	}
	begin, end := e.Offsets[0], e.Offsets[1]
	if begin > end || end > data {
		return damaged("data_offsets [%d, %d) in %d bytes of data; the file may be cut short, download it again",
			begin, end, data)
	}
	if len(e.Shape) > maxRank {
		return unsupported("%d axes, at most %d are read", len(e.Shape), maxRank)
	}
	want := uint64(dtype.Bytes())
	for _, n := range e.Shape {
		if n == 0 {
			return unsupported("shape %v is empty", e.Shape)
		}
		hi, lo := bits.Mul64(want, n)
		if hi != 0 || lo > data {
			return damaged("shape %v of %s does not fit into %d bytes of data", e.Shape, e.DType, data)
		}
		want = lo
	}
	if end-begin != want {
		return damaged("data_offsets [%d, %d) are %d bytes, shape %v of %s takes %d",
			begin, end, end-begin, e.Shape, e.DType, want)
	}
	return nil
}
