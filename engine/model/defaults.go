package model

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/coppice-llm/coppice/engine/model/gguf"
)

// Defaults are the sampling parameters that a model's authors recommend, with the meanings of
// Hugging Face's GenerationConfig. Nil: no recommendation.
type Defaults struct {
	Temperature       *float64 // at least 0; 0 is greedy
	TopP              *float64 // (0, 1]
	TopK              *int     // at least 0; 0 is off
	MinP              *float64 // [0, 1]
	RepetitionPenalty *float64 // above 0; 1 is off
}

// defaultNames are the names of the parameters, in generation_config.json and, under
// general.sampling, in the metadata of GGUF files.
//
// Source: gguf-py/gguf/constants.py of llama.cpp, Keys.General.SAMPLING_*.
var defaultNames = []struct {
	json, gguf string
	lo, hi     float64
	above      bool // lo itself is excluded
	to         func(*Defaults, float64)
}{
	{"temperature", "temp", 0, 100, false, func(d *Defaults, v float64) { d.Temperature = &v }},
	{"top_p", "top_p", 0, 1, true, func(d *Defaults, v float64) { d.TopP = &v }},
	{"top_k", "top_k", -1, 1 << 30, false, func(d *Defaults, v float64) { k := max(int(v), 0); d.TopK = &k }},
	{"min_p", "min_p", 0, 1, false, func(d *Defaults, v float64) { d.MinP = &v }},
	{"repetition_penalty", "penalty_repeat", 0, 100, true, func(d *Defaults, v float64) { d.RepetitionPenalty = &v }},
}

// ReadDefaults reads the recommended sampling parameters of the model at path: from
// generation_config.json of a directory, or from the metadata of a GGUF file. A model without
// any is no error. It reports all invalid values at once; other errors are those of Open.
func ReadDefaults(path string) (Defaults, error) {
	if IsGGUF(path) {
		w, meta, err := mapGGUF(path)
		if err != nil {
			return Defaults{}, err
		}
		defer w.close()
		d, err := ggufDefaults(meta)
		if err != nil {
			return d, fmt.Errorf("%s: %w", path, err)
		}
		return d, nil
	}
	data, err := readFile(filepath.Join(path, "generation_config.json"), maxConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Defaults{}, nil
	}
	if err != nil {
		return Defaults{}, fmt.Errorf("model: %w", err)
	}
	d, err := parseDefaults(data)
	if err != nil {
		return d, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

func parseDefaults(generation []byte) (d Defaults, _ error) {
	f, err := newFields("generation_config.json", generation)
	if err != nil {
		return d, err
	}
	for _, n := range defaultNames {
		var v float64
		if !f.read(n.json, &v, "a number") {
			continue
		}
		if v < n.lo || v > n.hi || n.above && v == n.lo {
			f.fail(damaged("%s is %v, want %s", n.json, v, span(n.lo, n.hi, n.above)))
			continue
		}
		n.to(&d, v)
	}
	return d, f.err()
}

func ggufDefaults(meta *gguf.Meta) (d Defaults, _ error) {
	var errs []error
	for _, n := range defaultNames {
		key := "general.sampling." + n.gguf
		if !meta.Has(key) {
			continue
		}
		v, ok := meta.Float(key)
		if !ok || !(v >= n.lo && v <= n.hi) || n.above && v == n.lo {
			errs = append(errs, damaged("%s is %s, want %s", key, meta.Text(key), span(n.lo, n.hi, n.above)))
			continue
		}
		n.to(&d, v)
	}
	return d, errors.Join(errs...)
}

// span describes a range for a message.
func span(lo, hi float64, above bool) string {
	if above {
		return fmt.Sprintf("a number above %v, up to %v", lo, hi)
	}
	return fmt.Sprintf("a number from %v to %v", lo, hi)
}
