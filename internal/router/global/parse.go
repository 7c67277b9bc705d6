package global

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// file is the JSON of a configuration. Pointers distinguish missing keys from zeros.
type file struct {
	Mode          Mode      `json:"mode"`
	Count         *int      `json:"num_agg_pools"`
	Names         []string  `json:"agg_pool_dynamo_namespaces"`
	Strategy      *strategy `json:"agg_pool_selection_strategy"`
	Priorities    []int     `json:"agg_pool_priorities"`
	PriorityRetry bool      `json:"enable_priority_retry"`
}

// strategy is the JSON of a grid.
type strategy struct {
	TTFTMin        *float64 `json:"ttft_min"` // old names, without unit
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

	Mapping   json.RawMessage `json:"agg_pool_mapping"`
	Overrides []Override      `json:"priority_overrides"`
}

// Parse reads a JSON configuration of Dynamo's global router, in the form of 2026-02 or of
// 2026-08, which added modes, overrides and priorities. Warnings name keys of the older form.
// Missing and unknown keys are errors, and so is everything that Validate refuses. Of a
// Disaggregated configuration it reads only the mode.
func Parse(text []byte) (cfg *Config, warnings []string, err error) {
	var kind struct {
		Mode    *Mode           `json:"mode"`
		Prefill json.RawMessage `json:"num_prefill_pools"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, nil, fmt.Errorf("global: configuration: %w", err)
	}
	if kind.Mode != nil && *kind.Mode != Aggregated || kind.Mode == nil && kind.Prefill != nil {
		return &Config{Mode: Disaggregated}, nil, nil
	}
	var f file
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, nil, fmt.Errorf("global: configuration: %w", err)
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

// parser collects errors and warnings.
type parser struct {
	errs     []error
	warnings []string
}

func (p *parser) missing(key string) {
	p.errs = append(p.errs, fmt.Errorf("global: missing key %q", key))
}

// need returns *v, the value of a required key. If v is nil, it records the key as missing and
// returns the zero value.
func need[T any](p *parser, key string, v *T) T {
	if v == nil {
		p.missing(key)
		return *new(T)
	}
	return *v
}

func (p *parser) config(f *file) *Config {
	if f.Names == nil {
		p.missing("agg_pool_dynamo_namespaces")
	}
	c := &Config{Mode: f.Mode, PriorityRetry: f.PriorityRetry, Aggregated: Pools{need(p, "num_agg_pools", f.Count), f.Names, f.Priorities}}
	if f.Strategy == nil {
		p.missing("agg_pool_selection_strategy")
	} else {
		c.AggregatedStrategy = p.strategy(f.Strategy)
	}
	return c
}

// axis returns an axis. Its three keys are required and begin with name.
func (p *parser) axis(name string, least, most *float64, resolution *int) Axis {
	return Axis{need(p, name+"_min", least), need(p, name+"_max", most), need(p, name+"_resolution", resolution)}
}

// milliseconds returns an axis whose keys for the ends have the suffix _ms since 2026-08. The
// old keys, without suffix, are accepted with a warning; both keys for one end are an error.
func (p *parser) milliseconds(name string, least, oldLeast, most, oldMost *float64, resolution *int) Axis {
	either := func(key string, v, old *float64) float64 {
		if v == nil && old != nil {
			p.warnings = append(p.warnings, fmt.Sprintf("key %q is called %q since 2026-08", key, key+"_ms"))
			return *old
		}
		if v != nil && old != nil {
			p.errs = append(p.errs, fmt.Errorf("global: both %q and %q: want one", key, key+"_ms"))
		}
		return need(p, key+"_ms", v)
	}
	return Axis{either(name+"_min", least, oldLeast), either(name+"_max", most, oldMost), need(p, name+"_resolution", resolution)}
}

// strategy converts a grid from JSON. If it has no ISL axis, its mapping has two dimensions,
// which become the only plane.
func (p *parser) strategy(s *strategy) *AggregatedStrategy {
	a := &AggregatedStrategy{
		TTFT:      p.milliseconds("ttft", s.TTFTMinMS, s.TTFTMin, s.TTFTMaxMS, s.TTFTMax, s.TTFTResolution),
		ITL:       p.milliseconds("itl", s.ITLMinMS, s.ITLMin, s.ITLMaxMS, s.ITLMax, s.ITLResolution),
		Overrides: s.Overrides,
	}
	if s.Mapping == nil {
		p.missing("agg_pool_mapping")
		return a
	}
	into := any(&a.Pools)
	if s.ISLMin == nil && s.ISLMax == nil && s.ISLResolution == nil {
		a.Pools = make([][][]int, 1)
		into = &a.Pools[0]
	} else { // all three keys, or none
		axis := p.axis("isl", s.ISLMin, s.ISLMax, s.ISLResolution)
		a.ISL = &axis
	}
	if err := json.Unmarshal(s.Mapping, into); err != nil {
		p.errs = append(p.errs, fmt.Errorf("global: agg_pool_mapping, by ttft and itl, below isl where there are its keys: %w", err))
	}
	return a
}
