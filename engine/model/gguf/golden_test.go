package gguf

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
)

// golden is testdata/golden.json: the values that the Python package gguf reads from
// testdata/golden.gguf, which it wrote. See testdata/golden.py.
type golden struct {
	Tensors map[string]struct {
		Shape []int
		Bits  []uint32
	}
}

func readGolden(t testing.TB) (*File, golden) {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.gguf")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return f, g
}

func TestValuesAreTheReferences(t *testing.T) {
	f, g := readGolden(t)
	if len(f.Tensors) != len(Types()) || len(g.Tensors) != len(Types()) {
		t.Fatalf("%d tensors, %d goldens, %d types", len(f.Tensors), len(g.Tensors), len(Types()))
	}
	for _, tensor := range f.Tensors {
		want := g.Tensors[tensor.Name]
		if tensor.Type.String() != tensor.Name || !slices.Equal(tensor.Shape, want.Shape) {
			t.Errorf("%s: %v of %v, want shape %v", tensor.Name, tensor.Shape, tensor.Type, want.Shape)
			continue
		}
		got := make([]float32, len(want.Bits))
		Dequantize(tensor.Type, got, tensor.Data)
		wrong := 0
		for i, v := range got {
			if math.Float32bits(v) != want.Bits[i] {
				if wrong++; wrong <= 3 {
					t.Errorf("%s: value %d is %v, want %v", tensor.Name, i, v, math.Float32frombits(want.Bits[i]))
				}
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d values differ", tensor.Name, wrong, len(got))
		}
	}
}

func TestMetadataIsTheReferences(t *testing.T) {
	f, _ := readGolden(t)
	m := &f.Meta
	if arch, ok := m.String("general.architecture"); !ok || arch != "llama" {
		t.Errorf("architecture %q %v", arch, ok)
	}
	if s, ok := m.String("a.string"); !ok || s != "größer 🙂" {
		t.Errorf("string %q %v", s, ok)
	}
	for key, want := range map[string]uint64{"a.u8": 200, "a.u16": 60000, "a.u32": 4_000_000_000, "a.u64": 1 << 63} {
		if got, ok := m.Uint(key); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", key, got, ok, want)
		}
	}
	for key, want := range map[string]float64{"a.i8": -100, "a.i16": -30000, "a.i32": -2e9, "a.f32": 0.15625, "a.i64": -(1 << 62), "a.f64": 1e300, "a.u8": 200} {
		if got, ok := m.Float(key); !ok || got != want {
			t.Errorf("%s: %v %v, want %v", key, got, ok, want)
		}
	}
	if b, ok := m.Bool("a.bool"); !ok || !b {
		t.Errorf("bool %v %v", b, ok)
	}
	if got, ok := m.Strings("a.strings"); !ok || !slices.Equal(got, []string{"", "a", "zwei drei"}) {
		t.Errorf("strings %q %v", got, ok)
	}
	if got, ok := m.Floats("a.ints"); !ok || !slices.Equal(got, []float64{1, -2, 3}) {
		t.Errorf("ints %v %v", got, ok)
	}
	if got, ok := m.Floats("a.floats"); !ok || !slices.Equal(got, []float64{1.5, -2.5}) {
		t.Errorf("floats %v %v", got, ok)
	}
}

// A value of another kind is not returned as the requested one.
func TestMetadataOfAnotherKind(t *testing.T) {
	f, _ := readGolden(t)
	m := &f.Meta
	for _, key := range []string{"none", "a.u8", "a.strings", "a.bool"} {
		if v, ok := m.String(key); ok {
			t.Errorf("%s is the text %q", key, v)
		}
	}
	for _, key := range []string{"none", "a.i8", "a.string", "a.f32", "a.bool", "a.ints"} {
		if v, ok := m.Uint(key); ok {
			t.Errorf("%s is the number %d", key, v)
		}
	}
	for _, key := range []string{"none", "a.string", "a.bool", "a.ints"} {
		if v, ok := m.Float(key); ok {
			t.Errorf("%s is the number %v", key, v)
		}
		if v, ok := m.Strings(key); ok {
			t.Errorf("%s are texts %q", key, v)
		}
	}
	for _, key := range []string{"none", "a.ints", "a.strings", "a.string", "a.bools"} {
		if v, ok := m.Uints(key); ok {
			t.Errorf("%s are whole numbers %v", key, v)
		}
	}
	if b, ok := m.Bool("a.u8"); ok {
		t.Errorf("a.u8 is %v", b)
	}
}
