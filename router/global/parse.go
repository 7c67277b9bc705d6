package global

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// file is the JSON of a configuration. Pointers tell what is missing.
type file struct {
	Mode *Mode `json:"mode"`

	NumPrefill         *int      `json:"num_prefill_pools"`
	NumDecode          *int      `json:"num_decode_pools"`
	NumAggregated      *int      `json:"num_agg_pools"`
	PrefillNames       []string  `json:"prefill_pool_dynamo_namespaces"`
	DecodeNames        []string  `json:"decode_pool_dynamo_namespaces"`
	AggregatedNames    []string  `json:"agg_pool_dynamo_namespaces"`
	PrefillStrategy    *strategy `json:"prefill_pool_selection_strategy"`
	DecodeStrategy     *strategy `json:"decode_pool_selection_strategy"`
	AggregatedStrategy *strategy `json:"agg_pool_selection_strategy"`
	PrefillPriorities  []int     `json:"prefill_pool_priorities"`
	DecodePriorities   []int     `json:"decode_pool_priorities"`
	AggPriorities      []int     `json:"agg_pool_priorities"`
	PriorityRetry      bool      `json:"enable_priority_retry"`
}

// strategy has the fields of all strategies; each kind takes its own.
type strategy struct {
	TTFTMin        *float64 `json:"ttft_min"` // old names, without the unit
	TTFTMax        *float64 `json:"ttft_max"`
	TTFTMinMS      *float64 `json:"ttft_min_ms"`
	TTFTMaxMS      *float64 `json:"ttft_max_ms"`
	TTFTResolution *int     `json:"ttft_resolution"`
	ITLMin         *float64 `json:"itl_min"`
	ITLMax         *float64 `json:"itl_max"`
	ITLMinMS       *float64 `json:"itl_min_ms"`
	ITLMaxMS       *float64 `json:"itl_max_ms"`
	ITLResolution  *int     `json:"itl_resolution"`
	ISLMin         *float64 `json:"isl_min"`
	ISLMax         *float64 `json:"isl_max"`
	ISLResolution  *int     `json:"isl_resolution"`

	ContextMin        *float64 `json:"context_length_min"`
	ContextMax        *float64 `json:"context_length_max"`
	ContextResolution *int     `json:"context_length_resolution"`

	PrefillMapping    [][]int         `json:"prefill_pool_mapping"`
	DecodeMapping     [][]int         `json:"decode_pool_mapping"`
	AggregatedMapping json.RawMessage `json:"agg_pool_mapping"`
	Overrides         []Override      `json:"priority_overrides"`
}

// Parse reads a configuration of Dynamo's global router from JSON: that of
// 2026-02, and that of 2026-08 with its modes, overrides and priorities. Warnings
// name the keys of the former form. Missing and unknown keys are errors, as is all
// that Validate refuses.
func Parse(text []byte) (cfg *Config, warnings []string, err error) {
	var f file
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, nil, fmt.Errorf("global: configuration: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, errors.New("global: configuration: more follows after the object, want one object")
	}
	p := &parser{}
	cfg = p.config(&f)
	if len(p.errs) > 0 {
		return nil, p.warnings, errors.Join(p.errs...)
	}
	if err := cfg.Validate(); err != nil {
		return nil, p.warnings, err
	}
	return cfg, p.warnings, nil
}

// parser gathers what is missing and what is old.
type parser struct {
	in       string // the object that is read
	errs     []error
	warnings []string
}

func (p *parser) missing(key string) {
	p.errs = append(p.errs, fmt.Errorf("global: missing key %q%s", key, p.in))
}

// need is the value of a key that must be there.
func need[T any](p *parser, key string, v *T) T {
	if v == nil {
		p.missing(key)
		return *new(T)
	}
	return *v
}

func (p *parser) config(f *file) *Config {
	c := &Config{PriorityRetry: f.PriorityRetry}
	if f.Mode != nil {
		c.Mode = *f.Mode
	}
	if c.Mode == Aggregated {
		c.Aggregated = p.pools("agg", f.NumAggregated, f.AggregatedNames, f.AggPriorities)
		if p.has("agg", f.AggregatedStrategy) {
			c.AggregatedStrategy = p.aggregated(f.AggregatedStrategy)
		}
		return c
	}
	c.Prefill = p.pools("prefill", f.NumPrefill, f.PrefillNames, f.PrefillPriorities)
	c.Decode = p.pools("decode", f.NumDecode, f.DecodeNames, f.DecodePriorities)
	if s := f.PrefillStrategy; p.has("prefill", s) {
		c.PrefillStrategy = &PrefillStrategy{
			TTFT: p.milliseconds("ttft", s.TTFTMinMS, s.TTFTMin, s.TTFTMaxMS, s.TTFTMax, s.TTFTResolution),
			ISL:  p.axis("isl", s.ISLMin, s.ISLMax, s.ISLResolution), Pools: s.PrefillMapping, Overrides: s.Overrides,
		}
		if s.PrefillMapping == nil {
			p.missing("prefill_pool_mapping")
		}
	}
	if s := f.DecodeStrategy; p.has("decode", s) {
		c.DecodeStrategy = &DecodeStrategy{
			ITL:     p.milliseconds("itl", s.ITLMinMS, s.ITLMin, s.ITLMaxMS, s.ITLMax, s.ITLResolution),
			Context: p.axis("context_length", s.ContextMin, s.ContextMax, s.ContextResolution), Pools: s.DecodeMapping, Overrides: s.Overrides,
		}
		if s.DecodeMapping == nil {
			p.missing("decode_pool_mapping")
		}
	}
	return c
}

// has tells whether the strategy of a kind is there, and goes into it.
func (p *parser) has(kind string, s *strategy) bool {
	key := kind + "_pool_selection_strategy"
	p.in = ""
	if s == nil {
		p.missing(key)
		return false
	}
	p.in = " in " + key
	return true
}

func (p *parser) pools(kind string, count *int, names []string, priorities []int) Pools {
	if names == nil {
		p.missing(kind + "_pool_dynamo_namespaces")
	}
	return Pools{Count: need(p, "num_"+kind+"_pools", count), Names: names, Priorities: priorities}
}

func (p *parser) axis(name string, least, most *float64, resolution *int) Axis {
	return Axis{need(p, name+"_min", least), need(p, name+"_max", most), need(p, name+"_resolution", resolution)}
}

// milliseconds is an axis whose keys have a unit since 2026-08.
func (p *parser) milliseconds(name string, least, oldLeast, most, oldMost *float64, resolution *int) Axis {
	either := func(key string, v, old *float64) float64 {
		if v == nil && old != nil {
			p.warnings = append(p.warnings, fmt.Sprintf("key %q%s is called %q since 2026-08", key, p.in, key+"_ms"))
			return *old
		}
		if v != nil && old != nil {
			p.errs = append(p.errs, fmt.Errorf("global: both %q and %q%s: want one", key, key+"_ms", p.in))
		}
		return need(p, key+"_ms", v)
	}
	return Axis{either(name+"_min", least, oldLeast), either(name+"_max", most, oldMost), need(p, name+"_resolution", resolution)}
}

func (p *parser) aggregated(s *strategy) *AggregatedStrategy {
	a := &AggregatedStrategy{
		TTFT:      p.milliseconds("ttft", s.TTFTMinMS, s.TTFTMin, s.TTFTMaxMS, s.TTFTMax, s.TTFTResolution),
		ITL:       p.milliseconds("itl", s.ITLMinMS, s.ITLMin, s.ITLMaxMS, s.ITLMax, s.ITLResolution),
		Overrides: s.Overrides,
	}
	if s.AggregatedMapping == nil {
		p.missing("agg_pool_mapping")
		return a
	}
	into := any(&a.Pools)
	if s.ISLMin == nil && s.ISLMax == nil && s.ISLResolution == nil {
		a.Pools = make([][][]int, 1)
		into = &a.Pools[0]
	} else { // all of them or none
		axis := p.axis("isl", s.ISLMin, s.ISLMax, s.ISLResolution)
		a.ISL = &axis
	}
	if err := json.Unmarshal(s.AggregatedMapping, into); err != nil {
		p.errs = append(p.errs, fmt.Errorf("global: agg_pool_mapping, by ttft and itl, below isl where there are its keys: %w", err))
	}
	return a
}
