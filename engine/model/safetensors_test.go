package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
)

// safetensors builds a file from a header's JSON and data bytes.
func safetensors(header string, data int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	out = append(out, header...)
	for i := range data {
		out = append(out, byte(i))
	}
	return out
}

const goodHeader = `{"__metadata__":{"format":"pt"},` +
	`"b":{"dtype":"F16","shape":[2,3],"data_offsets":[8,20]},` +
	`"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},` +
	`"s":{"dtype":"BF16","shape":[],"data_offsets":[20,22]}}  `

func TestParseSafetensors(t *testing.T) {
	tensors, err := parseSafetensors(safetensors(goodHeader, 22))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range tensors {
		got = append(got, fmt.Sprintf("%s %v %v %d@%d", x.Name, x.DType, x.Shape, x.Len(), x.Data[0]))
	}
	want := []string{"a f32 [2] 2@0", "b f16 [2 3] 6@8", "s bf16 [] 1@20"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestParseCutFile cuts a valid file at every length: each is an error.
func TestParseCutFile(t *testing.T) {
	file := safetensors(goodHeader, 22)
	for n := range file {
		if _, err := parseSafetensors(file[:n:n]); !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d of %d bytes: error %v", n, len(file), err)
		}
	}
	if _, err := parseSafetensors(append(file, 0)); !errors.Is(err, ErrFormat) {
		t.Errorf("one byte too many: error %v", err)
	}
}

func TestParseSafetensorsRefuses(t *testing.T) {
	length := func(n uint64) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), "{}"...)
	}
	one := func(entry string) []byte { return safetensors(`{"x":`+entry+`}`, 8) }
	for name, tc := range map[string]struct {
		file []byte
		want string
		kind error
	}{
		"header over the limit":  {length(maxHeaderBytes + 1), "at most 100000000", ErrFormat},
		"header length wraps":    {length(1<<64 - 1), "at most 100000000", ErrFormat},
		"header past the end":    {length(3), "header of 3 bytes in a file of 10", ErrFormat},
		"header is a list":       {safetensors(`[]`, 0), "not a JSON object", ErrFormat},
		"header is text":         {safetensors(`<html>`, 0), "not a JSON object", ErrFormat},
		"empty header":           {length(0), "not a JSON object", ErrFormat},
		"more after the header":  {safetensors(`{}{}`, 0), "more follows", ErrFormat},
		"header not closed":      {safetensors(`{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}`, 0), "header", ErrFormat},
		"name twice":             {safetensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), `"x" occurs twice`, ErrFormat},
		"metadata of numbers":    {safetensors(`{"__metadata__":{"a":1}}`, 0), "__metadata__", ErrFormat},
		"entry is a string":      {one(`"F32"`), `"x"`, ErrFormat},
		"negative size":          {one(`{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}`), `"x"`, ErrFormat},
		"fractional size":        {one(`{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}`), `"x"`, ErrFormat},
		"size over 64 bits":      {one(`{"dtype":"F32","shape":[36893488147419103232],"data_offsets":[0,8]}`), `"x"`, ErrFormat},
		"product wraps to 8":     {one(`{"dtype":"F32","shape":[4611686018427387905,2],"data_offsets":[0,8]}`), "does not fit", ErrFormat},
		"empty axis":             {one(`{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}`), "is empty", ErrUnsupported},
		"too many axes":          {one(`{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}`), "9 axes", ErrUnsupported},
		"no offsets":             {one(`{"dtype":"F32","shape":[2]}`), "data_offsets []", ErrFormat},
		"three offsets":          {one(`{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}`), "data_offsets [0 8 8]", ErrFormat},
		"offsets backwards":      {one(`{"dtype":"F32","shape":[2],"data_offsets":[8,0]}`), "[8, 0)", ErrFormat},
		"offsets past the end":   {one(`{"dtype":"F32","shape":[4],"data_offsets":[0,16]}`), "in 8 bytes", ErrFormat},
		"shape smaller":          {one(`{"dtype":"F32","shape":[1],"data_offsets":[0,8]}`), "8 bytes, shape [1] of F32 takes 4", ErrFormat},
		"shape larger":           {one(`{"dtype":"F16","shape":[4],"data_offsets":[0,6]}`), "6 bytes, shape [4] of F16 takes 8", ErrFormat},
		"hole at the start":      {one(`{"dtype":"F32","shape":[1],"data_offsets":[4,8]}`), "begins at 4, but the one before ends at 0", ErrFormat},
		"hole at the end":        {one(`{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`), "end at 4 of 8", ErrFormat},
		"hole between":           {safetensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12), "begins at 8", ErrFormat},
		"overlap":                {safetensors(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), `"x" and "y" overlap`, ErrFormat},
		"same place":             {safetensors(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8), `"x" and "y" overlap`, ErrFormat},
		"fp8":                    {one(`{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}`), `dtype "F8_E4M3"; F32, F16 and BF16`, ErrUnsupported},
		"integers":               {one(`{"dtype":"I64","shape":[1],"data_offsets":[0,8]}`), `dtype "I64"`, ErrUnsupported},
		"no dtype":               {one(`{"shape":[1],"data_offsets":[0,8]}`), `dtype ""`, ErrUnsupported},
		"lower case":             {one(`{"dtype":"f32","shape":[2],"data_offsets":[0,8]}`), `dtype "f32"`, ErrUnsupported},
		"offset above the int64": {one(`{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]}`), "in 8 bytes", ErrFormat},
	} {
		_, err := parseSafetensors(tc.file)
		if !errors.Is(err, tc.kind) || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: error %v, want %v with %q", name, err, tc.kind, tc.want)
		}
	}
}

// FuzzSafetensors: the parser returns for any bytes, and the tensors that it accepts cover the
// data exactly, in order.
func FuzzSafetensors(f *testing.F) {
	f.Add(safetensors(goodHeader, 22))
	f.Add(safetensors(`{}`, 0))
	f.Add(safetensors(`{"x":{"dtype":"F32","shape":[4611686018427387905,2],"data_offsets":[0,8]}}`, 8))
	f.Add(safetensors(`{"x":`+deep(), 8))
	f.Add(safetensors(`{"x":{"dtype":"BF16","shape":[4],"data_offsets":[4,12]},"y":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 12))
	f.Add(safetensors(`{"x":{"dtype":"F32","shape":[`+strings.Repeat("1,", 40)+`2],"data_offsets":[0,8]}}`, 8))
	f.Fuzz(func(t *testing.T, file []byte) {
		tensors, err := parseSafetensors(file)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("error without a kind: %v", err)
			}
			return
		}
		at := 8 + int(binary.LittleEndian.Uint64(file))
		for _, x := range tensors {
			n := x.DType.Bytes()
			for _, s := range x.Shape {
				n *= s
			}
			if n != len(x.Data) || cap(x.Data) != n || &x.Data[0] != &file[at] {
				t.Fatalf("%q: %v %v has %d bytes", x.Name, x.DType, x.Shape, len(x.Data))
			}
			if x.DType != kv.F32 && x.DType != kv.F16 && x.DType != kv.BF16 {
				t.Fatalf("%q: type %v", x.Name, x.DType)
			}
			at += n
			x.Widen(make([]float32, 1), x.Len()-1, x.Len())
		}
		if at != len(file) {
			t.Fatalf("tensors end at %d of %d", at, len(file))
		}
	})
}
