package gguf_test

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/gguf/writer"
)

// build writes a file with the given pairs and tensors, all zeros.
func build(t testing.TB, pairs []writer.Pair, tensors ...gguf.Tensor) []byte {
	t.Helper()
	out, err := writer.Header(pairs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range tensors {
		n := 1
		for _, d := range tensor.Shape {
			n *= d
		}
		size := tensor.Type.Bytes(n)
		out = append(out, make([]byte, size+writer.Padding(size))...)
	}
	return out
}

func small(t testing.TB) []byte {
	return build(t, []writer.Pair{{Key: "general.architecture", Value: "llama"}, {Key: "x", Value: []string{"a", "bc"}}, {Key: "y", Value: []int32{1, 2}}},
		gguf.Tensor{Name: "w", Type: gguf.Q4_0, Shape: []int{3, 64}}, gguf.Tensor{Name: "n", Type: gguf.F32, Shape: []int{5}})
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	f, err := gguf.Parse(small(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Tensors) != 2 || f.Version != 3 || len(f.Tensors[0].Data) != 3*2*18 || len(f.Tensors[1].Data) != 20 {
		t.Errorf("%+v", f)
	}
	if got := f.Meta.Keys(); len(got) != 3 || got[1] != "x" {
		t.Errorf("keys %q", got)
	}
}

// A file that is truncated anywhere is refused, except within the padding at its end.
func TestTruncatedFiles(t *testing.T) {
	data := small(t)
	end := len(data) - writer.Padding(20)
	for n := range end {
		if _, err := gguf.Parse(data[:n:n]); !errors.Is(err, gguf.ErrFormat) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	if _, err := gguf.Parse(data[:end]); err != nil {
		t.Errorf("without the last padding: %v", err)
	}
}

func TestHostileFiles(t *testing.T) {
	le := binary.LittleEndian
	put32 := func(at int, v uint32) func([]byte) { return func(d []byte) { le.PutUint32(d[at:], v) } }
	put64 := func(at int, v uint64) func([]byte) { return func(d []byte) { le.PutUint64(d[at:], v) } }
	base := small(t)
	after := func(s string) int { return strings.Index(string(base), s) + len(s) }
	w := after("\x01\x00\x00\x00\x00\x00\x00\x00w")
	n := after("\x01\x00\x00\x00\x00\x00\x00\x00n")
	arch, x, y := after("general.architecture"), after("\x01\x00\x00\x00\x00\x00\x00\x00x"), after("\x01\x00\x00\x00\x00\x00\x00\x00y")
	for name, tc := range map[string]struct {
		change func([]byte)
		kind   error
		want   string
	}{
		"magic":                {func(d []byte) { d[0] = 'X' }, gguf.ErrFormat, `begins with "XGUF"`},
		"version 1":            {put32(4, 1), gguf.ErrUnsupported, "at byte 4: version 1"},
		"version 4":            {put32(4, 4), gguf.ErrUnsupported, "version 4"},
		"big-endian":           {put32(4, 3<<24), gguf.ErrUnsupported, "big-endian"},
		"tensors":              {put64(8, 1<<60), gguf.ErrFormat, "at byte 8: 1152921504606846976 tensors"},
		"pairs":                {put64(16, 1<<40), gguf.ErrFormat, "at byte 16"},
		"key":                  {put64(24, 1<<63), gguf.ErrFormat, "at byte 24: a metadata key of 9223372036854775808 bytes"},
		"kind":                 {put32(arch, 13), gguf.ErrFormat, "has type 13"},
		"text":                 {put64(arch+4, 1<<62), gguf.ErrFormat, "at byte 56"},
		"elements":             {put64(x+8, 1<<61), gguf.ErrFormat, "elements of metadata x"},
		"elements of a size":   {put64(y+8, 1<<62), gguf.ErrFormat, "elements of metadata y"},
		"array of arrays":      {put32(y+4, uint32(gguf.Array)), gguf.ErrUnsupported, "array of arrays"},
		"array of nothing":     {put32(y+4, 99), gguf.ErrFormat, "has type 99"},
		"text in an array":     {put64(x+16, 1<<50), gguf.ErrFormat, "a text of metadata x"},
		"a key twice":          {func(d []byte) { d[y-1] = 'x' }, gguf.ErrFormat, `metadata "x" occurs twice`},
		"a tensor twice":       {func(d []byte) { d[n-1] = 'w' }, gguf.ErrFormat, `tensor "w" occurs twice`},
		"axes":                 {put32(w, 5), gguf.ErrFormat, "5 axes"},
		"no axis":              {put32(w, 0), gguf.ErrUnsupported, `tensor "w" is of type 64`},
		"an axis of 0":         {put64(w+12, 0), gguf.ErrFormat, `axis 1 of tensor "w" is 0`},
		"an endless axis":      {put64(w+12, 1<<63), gguf.ErrFormat, "axis 1"},
		"axes that overflow":   {put64(w+12, 1<<58), gguf.ErrFormat, "axis 1"},
		"no whole block":       {put64(w+4, 33), gguf.ErrFormat, "blocks have 32 values"},
		"type Q2_K":            {put32(w+20, 10), gguf.ErrUnsupported, "Q2_K; read are [F32"},
		"type 1000":            {put32(w+20, 1000), gguf.ErrUnsupported, "type 1000"},
		"too large for a file": {put64(w+12, 1<<20), gguf.ErrFormat, `tensor "w" takes`},
		"beyond the file":      {put64(n+16, 1<<40), gguf.ErrFormat, `tensor "n" takes`},
		"offset that wraps":    {put64(n+16, 1<<64-32), gguf.ErrFormat, `tensor "n" takes`},
		"off the alignment":    {put64(n+16, 4), gguf.ErrFormat, "no multiple of 32"},
		"shared bytes":         {put64(n+16, 32), gguf.ErrFormat, `within tensor "w"`},
	} {
		data := append([]byte(nil), base...)
		tc.change(data)
		_, err := gguf.Parse(data)
		if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %v with %q", name, err, tc.kind, tc.want)
		}
	}
}

func TestAlignment(t *testing.T) {
	for value, ok := range map[any]bool{uint32(32): true, uint32(8): true, uint64(1): true, uint32(0): false, uint32(33): false, "32": false, float32(32): false, uint64(1 << 40): false} {
		_, err := gguf.Parse(build(t, []writer.Pair{{Key: "general.alignment", Value: value}}, gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int{8}}))
		if ok != (err == nil) {
			t.Errorf("alignment %v: %v", value, err)
		}
	}
	data := build(t, []writer.Pair{{Key: "general.alignment", Value: uint32(64)}, {Key: "pad", Value: "0123456789"}}, gguf.Tensor{Name: "w", Type: gguf.F32, Shape: []int{8}})
	f, err := gguf.Parse(append(data, make([]byte, 32)...))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Tensors[0].Data) != 32 {
		t.Errorf("%d bytes", len(f.Tensors[0].Data))
	}
}

// A file may have metadata only, like the first part of a split file.
func TestNoTensors(t *testing.T) {
	data := build(t, []writer.Pair{{Key: "a", Value: true}})
	if f, err := gguf.Parse(data); err != nil || len(f.Tensors) != 0 {
		t.Errorf("%v %v", f, err)
	}
}

// allocated returns the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzParse(f *testing.F) {
	golden, err := os.ReadFile("testdata/golden.gguf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden[:2048])
	f.Add(small(f))
	f.Add(build(f, []writer.Pair{{Key: "general.alignment", Value: uint32(8)}, {Key: "s", Value: []string{"", "x"}}, {Key: "b", Value: true}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var file *gguf.File
		var err error
		if took := allocated(func() { file, err = gguf.Parse(data) }); took > uint64(64*len(data)+64<<10) {
			t.Fatalf("%d bytes took %d to parse", len(data), took)
		}
		if err != nil {
			if !errors.Is(err, gguf.ErrFormat) && !errors.Is(err, gguf.ErrUnsupported) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		for _, key := range file.Meta.Keys() {
			file.Meta.Text(key)
			file.Meta.String(key)
			file.Meta.Strings(key)
			file.Meta.Uints(key)
			file.Meta.Floats(key)
			file.Meta.Bool(key)
		}
		for _, tensor := range file.Tensors {
			values := len(tensor.Data) / tensor.Type.BlockBytes() * tensor.Type.BlockValues()
			gguf.Dequantize(tensor.Type, make([]float32, values), tensor.Data)
		}
	})
}
