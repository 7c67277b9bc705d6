package global

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Parse reads a JSON configuration of Dynamo's global router, in the form of 2026-02 or of
// 2026-08, which added modes, overrides and priorities. Warnings name keys of the older form.
// Missing and unknown keys are errors, and so is everything that Validate refuses. Of a
// configuration for separate prefill and decode pools it reads only the mode, and returns
// [ErrDisaggregated].
func Parse(text []byte) (cfg *Config, warnings []string, err error) {
	p, c := &parser{}, &Config{}
	o := object{parser: p}
	if err := json.Unmarshal(text, &o.keys); err != nil {
		return nil, nil, fmt.Errorf("global: configuration: %w", err)
	}
	_, prefill := o.keys["num_prefill_pools"]
	mode := "disagg"
	given := o.take("mode", &mode)
	switch {
	case len(p.errs) > 0: // the mode is no string
	case mode == "disagg" && (given || prefill):
		return nil, nil, ErrDisaggregated
	case mode != "disagg" && mode != "agg":
		p.errs.add("unknown mode %q, want agg or disagg", mode)
	}
	o.need("num_agg_pools", &c.Aggregated.Count)
	o.need("agg_pool_dynamo_namespaces", &c.Aggregated.Names)
	o.take("agg_pool_priorities", &c.Aggregated.Priorities)
	o.take("enable_priority_retry", &c.PriorityRetry)
	s := object{parser: p}
	if o.need("agg_pool_selection_strategy", &s.keys) {
		c.AggregatedStrategy = s.strategy()
	}
	o.end()
	switch {
	case len(p.unknown) > 0: // with unknown keys, others seem to be missing
		err = errors.Join(p.unknown...)
	case len(p.errs) > 0:
		err = errors.Join(p.errs...)
	case mode != "agg":
		err = ErrDisaggregated
	default:
		err = c.Validate()
	}
	if err != nil {
		return nil, p.warnings, err
	}
	return c, p.warnings, nil
}

// ErrDisaggregated is the error of Parse for separate pools for prefill and decode, Dynamo's
// default: here one worker computes a request's prompt and its output.
var ErrDisaggregated = errors.New("global: the mode is disagg, want agg")

// parser collects errors and warnings.
type parser struct {
	unknown, errs faults
	warnings      []string
}

// object is a JSON object. Its keys are taken one by one, so that end finds unknown ones.
type object struct {
	*parser
	keys map[string]json.RawMessage
}

// take removes a key, and decodes its value into v. It returns false for a missing key.
func (o object) take(key string, v any) bool {
	text, ok := o.keys[key]
	if delete(o.keys, key); !ok || string(text) == "null" {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		o.errs.add("%s: %w", key, err)
	}
	return true
}

// need is take for a required key.
func (o object) need(key string, v any) bool {
	ok := o.take(key, v)
	if !ok {
		o.errs.add("missing key %q", key)
	}
	return ok
}

// end records the keys that are left as errors.
func (o object) end() {
	for _, key := range slices.Sorted(maps.Keys(o.keys)) {
		o.unknown.add("configuration: unknown field %q", key)
	}
}

// strategy reads a grid. If it has no ISL axis, its mapping has two dimensions, which become the
// only plane.
func (o object) strategy() *AggregatedStrategy {
	a := &AggregatedStrategy{TTFT: o.axis("ttft", "_ms"), ITL: o.axis("itl", "_ms")}
	o.take("priority_overrides", &a.Overrides)
	var grid any = &a.Pools
	if o.keys["isl_min"] == nil && o.keys["isl_max"] == nil && o.keys["isl_resolution"] == nil {
		a.Pools = make([][][]int, 1)
		grid = &a.Pools[0]
	} else { // all three keys, or none
		a.ISL = new(o.axis("isl", ""))
	}
	o.need("agg_pool_mapping", grid) // by ttft and itl, below isl if there are its keys
	o.end()
	return a
}

// axis reads the three keys of an axis, which begin with name. Those of its ends have the suffix
// unit.
func (o object) axis(name, unit string) (a Axis) {
	o.bound(name+"_min", unit, &a.Min)
	o.bound(name+"_max", unit, &a.Max)
	o.need(name+"_resolution", &a.Resolution)
	return a
}

// bound reads the end of an axis, whose key has the suffix unit since 2026-08. The old key,
// without suffix, is accepted with a warning; both keys for one end are an error.
func (o object) bound(key, unit string, v *float64) {
	if unit == "" || !o.take(key, v) {
		o.need(key+unit, v)
		return
	}
	o.warnings = append(o.warnings, fmt.Sprintf("key %q is called %q since 2026-08", key, key+unit))
	if o.take(key+unit, v) {
		o.errs.add("both %q and %q: want one", key, key+unit)
	}
}
