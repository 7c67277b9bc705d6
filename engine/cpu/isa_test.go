package cpu

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/enginetest"
	"github.com/coppice-llm/coppice/engine/model/random"
)

// TestISAIsChosen checks the order of choice: config, environment, fastest path.
func TestISAIsChosen(t *testing.T) {
	m := testModel(t, random.Nano)
	isas := ISAs()
	best := isas[len(isas)-1]
	for _, c := range []struct {
		env          string
		config, want ISA
	}{{"", "", best}, {"portable", "", Portable}, {"portable", best, best}, {string(best), Portable, Portable}} {
		t.Setenv(ISAVariable, c.env)
		b := openTest(t, m, Config{KVTokens: 16, ISA: c.config})
		if b.step.ops.isa != c.want {
			t.Errorf("%s=%q and Config.ISA %q: path %s, want %s", ISAVariable, c.env, c.config, b.step.ops.isa, c.want)
		}
		if b.Info().NumericsID != NumericsID {
			t.Errorf("path %s changes the numerics id to %s", b.step.ops.isa, b.Info().NumericsID)
		}
	}
}

func TestUnknownISAIsRefused(t *testing.T) {
	m := testModel(t, random.Nano)
	refused := func(cfg Config, wants ...string) {
		t.Helper()
		b, err := Open(m, cfg)
		if err == nil {
			b.Close()
			t.Fatalf("Open made a backend on %s", b.step.ops.isa)
		}
		for _, w := range wants {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not name %q", err, w)
			}
		}
	}
	refused(Config{KVTokens: 16, ISA: "sse9"}, "sse9", "portable")
	t.Setenv(ISAVariable, "sse9")
	refused(Config{KVTokens: 16}, ISAVariable, "sse9", "portable", string(ISAs()[len(ISAs())-1]))
	var isa ISA
	if err := isa.UnmarshalText([]byte("AVX2")); err == nil {
		t.Error("a name in capitals was accepted")
	}
}

// productPaths returns the paths of this machine.
func productPaths() []*kernels {
	var all []*kernels
	for _, isa := range ISAs() {
		all = append(all, kernelsOf(isa))
	}
	return all
}

// ownISAs returns the paths of this machine without those that have all kernels of the path before, but for
// quantised weights: those with VNNI.
func ownISAs() (own []ISA) {
	var before *kernels
	for _, isa := range ISAs() {
		k := kernelsOf(isa)
		if before == nil || !sameButQuant(k, before) {
			own = append(own, isa)
		}
		before = k
	}
	return own
}

// sameButQuant reports whether two paths have the same functions, but for quantised weights.
func sameButQuant(a, b *kernels) bool {
	var equal func(x, y reflect.Value) bool
	equal = func(x, y reflect.Value) bool {
		switch x.Kind() {
		case reflect.Func:
			return x.Pointer() == y.Pointer()
		case reflect.Struct:
			for i := range x.NumField() {
				if !equal(x.Field(i), y.Field(i)) {
					return false
				}
			}
			return true
		case reflect.Slice:
			if x.Len() != y.Len() {
				return false
			}
			for i := range x.Len() {
				if !equal(x.Index(i), y.Index(i)) {
					return false
				}
			}
			return true
		}
		return x.Equal(y)
	}
	x, y := *a, *b
	x.isa, x.quant, y.isa, y.quant = "", nil, "", nil
	return equal(reflect.ValueOf(x), reflect.ValueOf(y))
}

// TestOwnISAs checks which paths the tests without quantised weights leave out.
func TestOwnISAs(t *testing.T) {
	for _, isa := range ISAs() {
		vnni := isa == AVXVNNI || isa == AVX512VNNI || isa == NEONDot
		if own := slices.Contains(ownISAs(), isa); own == vnni {
			t.Errorf("%s is left out: %v", isa, !own)
		}
	}
	if k := kernelsOf(Portable); len(ISAs()) > 1 && sameButQuant(k, kernelsOf(ISAs()[1])) {
		t.Error("a path of vectors has the functions of the portable one")
	}
}

// TestConformanceOnEachPath runs the suite on the paths that TestConformance does not choose.
func TestConformanceOnEachPath(t *testing.T) {
	isas := ownISAs() // TestConformance takes the last one's kernels
	for _, isa := range isas[:len(isas)-1] {
		t.Run(isa.String(), func(t *testing.T) {
			t.Setenv(ISAVariable, isa.String())
			enginetest.Run(t, conform(2))
		})
	}
}

// TestFaultyPathIsLeft checks that a path that fails its self-test is not chosen, and refused where it is
// asked for.
func TestFaultyPathIsLeft(t *testing.T) {
	isas := ISAs()
	if len(isas) == 1 {
		t.Skip("this machine has the portable path only")
	}
	t.Setenv(ISAVariable, "")
	best, fault := isas[len(isas)-1], errors.New("a wrong lane")
	faulty := func(isa ISA) error {
		if isa == best {
			return fault
		}
		return nil
	}
	isa, left, err := chooseISA("", faulty)
	if isa != isas[len(isas)-2] || len(left) != 1 || !errors.Is(left[0], fault) || err != nil {
		t.Errorf("path %s, faults %v, error %v", isa, left, err)
	}
	if isa, _, err := chooseISA(best, faulty); !errors.Is(err, fault) || !strings.Contains(err.Error(), "leave it empty") {
		t.Errorf("path %s was asked for: %s, error %v", best, isa, err)
	}
}
