package cpu

import (
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestSelfTest(t *testing.T) {
	for _, isa := range ISAs() {
		if err := SelfTest(isa); err != nil {
			t.Error(err)
		}
	}
	if err := SelfTest("sse9"); err == nil || !strings.Contains(err.Error(), "portable") {
		t.Errorf("an unknown path: %v", err)
	}
}

// TestSelfTestFindsEachKernel plants a kernel that gets one bit of one element wrong, for each kernel
// in turn, and checks that the self-test reports that kernel and no other.
func TestSelfTestFindsEachKernel(t *testing.T) {
	eachVector(t, func(t *testing.T, ops *kernels) {
		broken := 0
		plant := func(field reflect.Value, name string) {
			good := reflect.ValueOf(field.Interface())
			if good.IsNil() || name == "stream" || name == "fetch" { // they write nothing
				return
			}
			bit := byte(1) // another for each call: the same one in both parts of a sum might cancel
			field.Set(reflect.MakeFunc(good.Type(), func(args []reflect.Value) []reflect.Value {
				out := good.Call(args)
				*(*byte)(written(name, args)) ^= bit
				bit = bits.RotateLeft8(bit, 1)
				return out
			}))
			err := selfTest(ops)
			if err == nil {
				t.Errorf("kernel %s with a wrong bit passed", name)
			} else if !strings.Contains(err.Error(), "makeFuncStub") { // reflect's name
				t.Errorf("kernel %s has the wrong bit: %v", name, err)
			}
			field.Set(good)
			broken++
		}
		ops.tiles, ops.quant = slices.Clone(ops.tiles), &quantKernels{ops.quant.byKind, ops.quant.biased, ops.quant.order}
		for i := range ops.tiles {
			tile := reflect.ValueOf(&ops.tiles[i]).Elem()
			for _, name := range []string{"f32", "bf16", "f16"} {
				plant(settable(tile.FieldByName(name)), name)
			}
		}
		kinds := settable(reflect.ValueOf(ops.quant).Elem().FieldByName("byKind"))
		for kind := range kinds.Len() {
			plant(kinds.Index(kind), "quant")
		}
		all := reflect.ValueOf(ops).Elem()
		for i := range all.NumField() {
			if f := all.Field(i); f.Kind() == reflect.Func {
				plant(settable(f), all.Type().Field(i).Name)
			}
		}
		if broken < 42 {
			t.Errorf("only %d kernels were planted", broken)
		}
		if err := selfTest(ops); err != nil {
			t.Errorf("with all kernels in place again: %v", err)
		}
	})
}

// written returns what a kernel has written: the first argument, but for the kernels that write sums.
func written(name string, args []reflect.Value) unsafe.Pointer {
	if name == "squares" {
		return args[2].UnsafePointer()
	}
	return args[0].UnsafePointer()
}

// settable returns an unexported field as one that can be set.
func settable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// BenchmarkSelfTest measures what the first opening of a backend pays.
func BenchmarkSelfTest(b *testing.B) {
	for _, isa := range ISAs()[1:] {
		b.Run("isa="+isa.String(), func(b *testing.B) {
			for b.Loop() {
				if err := selfTest(kernelsOf(isa)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
