package router

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestWeightsByName: each float of Weights has its name, and no other.
func TestWeightsByName(t *testing.T) {
	fields := reflect.TypeFor[Weights]()
	n := 0
	for i := range fields.NumField() {
		f := fields.Field(i)
		if f.Type.Kind() != reflect.Float64 {
			continue
		}
		n++
		var w, want Weights
		if err := w.Set(strings.ToUpper(f.Name), 0.5); err != nil {
			t.Error(err)
		}
		reflect.ValueOf(&want).Elem().Field(i).SetFloat(0.5)
		if w != want {
			t.Errorf("%s sets %+v", f.Name, w)
		}
	}
	if n != len(weightNames) {
		t.Errorf("%d names for %d weights", len(weightNames), n)
	}
	if err := new(Weights).Set("speed", 1); err == nil || !strings.Contains(err.Error(), "ttft") {
		t.Error(err)
	}
}

// TestPolicyWeights: each policy uses existing weights, and each weight is used by a
// policy.
func TestPolicyWeights(t *testing.T) {
	used := map[string]bool{}
	for _, p := range policyNames.Values() {
		for _, name := range p.WeightNames() {
			if !slices.Contains(weightNames, name) {
				t.Errorf("policy %v uses %s, which is no weight", p, name)
			}
			used[name] = true
		}
	}
	if len(used) != len(weightNames) {
		t.Errorf("only %v are used", used)
	}
}
