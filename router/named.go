package router

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// weightNames are the names of the weights in texts, in the order of the fields of Weights.
var weightNames = []string{"score", "usage", "waiting", "prefill", "scale", "device", "host", "disk", "decay", "requests", "ttft", "itl", "backlog", "temperature"}

// WeightNames returns the names of the weights that the policy uses.
func (p Policy) WeightNames() []string {
	return slices.Clone([...][]string{
		CostLatency: {"ttft", "itl", "backlog", "temperature"},
		Cost2025:    {"score", "usage", "waiting", "temperature"},
		Cost2026:    {"prefill", "temperature"},
		CostCredits: {"scale", "device", "host", "disk", "decay", "requests", "temperature"},

		CostRoundRobin: {"temperature"}, CostRandom: {"temperature"}, CostLeastLoaded: {"temperature"}, CostPrefixHash: {"temperature"},
	}[p])
}

// Set changes the weight with the given name (see WeightNames; letter case does not matter). An
// unknown name is an error. The value is not checked: call Validate.
func (w *Weights) Set(name string, value float64) error {
	i := slices.Index(weightNames, strings.ToLower(name))
	if i < 0 {
		return fmt.Errorf("router: there is no weight %.40q, but %s", name, strings.Join(weightNames, ", "))
	}
	reflect.ValueOf(w).Elem().Field(i).SetFloat(value)
	return nil
}
