package router

import (
	"fmt"
	"slices"
	"strings"
)

// weightNames are what texts call the weights, in the order of the fields.
var weightNames = []string{"score", "usage", "waiting", "prefill", "scale", "device", "host", "disk", "decay", "requests", "ttft", "itl", "backlog", "temperature"}

// WeightNames are the names that Set knows.
func WeightNames() []string { return slices.Clone(weightNames) }

// WeightNames are those that the policy goes by.
func (p Policy) WeightNames() []string {
	return slices.Clone([...][]string{
		CostLatency: {"ttft", "itl", "backlog", "temperature"},
		Cost2025:    {"score", "usage", "waiting", "temperature"},
		Cost2026:    {"prefill", "temperature"},
		CostCredits: {"scale", "device", "host", "disk", "decay", "requests", "temperature"},

		CostRoundRobin: {"temperature"}, CostRandom: {"temperature"}, CostLeastLoaded: {"temperature"}, CostPrefixHash: {"temperature"},
	}[p])
}

// Set changes the weight of a name, in whatever case. Whether the value may be is
// Validate's to say.
func (w *Weights) Set(name string, value float64) error {
	fields := []*float64{
		&w.Score, &w.Usage, &w.Waiting, &w.Prefill, &w.Scale, &w.Device, &w.Host, &w.Disk, &w.Decay, &w.Requests, &w.TTFT, &w.ITL, &w.Backlog, &w.Temperature,
	}
	i := slices.Index(weightNames, strings.ToLower(name))
	if i < 0 {
		return fmt.Errorf("router: there is no weight %.40q, but %s", name, strings.Join(weightNames, ", "))
	}
	*fields[i] = value
	return nil
}
