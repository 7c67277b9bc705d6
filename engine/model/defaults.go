package model

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"

	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/internal/bounds"
)

// Defaults are the sampling parameters that a model's authors recommend, with the meanings of
// Hugging Face's GenerationConfig. Nil: no recommendation. The tags have the names in
// generation_config.json and in the metadata of GGUF files, and the bounds.
//
// Source: gguf-py/gguf/constants.py of llama.cpp, Keys.General.SAMPLING_*.
type Defaults struct {
	Temperature       *float64 `hf:"temperature" gguf:"general.sampling.temp" min:"0" max:"100"`                    // 0 is greedy
	TopP              *float64 `hf:"top_p" gguf:"general.sampling.top_p" above:"0" max:"1"`                         // 1 is off
	TopK              *int     `hf:"top_k" gguf:"general.sampling.top_k" min:"-1" max:"1<<30"`                      // 0 is off, as is -1 in the files
	MinP              *float64 `hf:"min_p" gguf:"general.sampling.min_p" min:"0" max:"1"`                           // 0 is off
	RepetitionPenalty *float64 `hf:"repetition_penalty" gguf:"general.sampling.penalty_repeat" above:"0" max:"100"` // 1 is off
}

// read sets the fields of d. number returns the number under a name, the tag of the given key; false
// if there is none. A number out of its field's bounds is an error for fail.
func (d *Defaults) read(key string, number func(name string) (float64, bool), fail func(error)) {
	for f, field := range reflect.ValueOf(d).Elem().Fields() {
		name := f.Tag.Get(key)
		n, ok := number(name)
		if !ok {
			continue
		}
		v := reflect.New(f.Type.Elem())
		v.Elem().Set(reflect.ValueOf(n).Convert(f.Type.Elem()))
		if want := bounds.Outside(f.Tag.Lookup, v.Elem()); want != "" {
			fail(damaged("%s is %v, want %s", name, n, want))
			continue
		}
		field.Set(v)
	}
	if d.TopK != nil {
		*d.TopK = max(*d.TopK, 0)
	}
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
	d.read("hf", func(name string) (v float64, ok bool) {
		ok = f.read(name, &v, "a number")
		return v, ok
	}, f.fail)
	return d, f.err()
}

func ggufDefaults(meta *gguf.Meta) (d Defaults, _ error) {
	f := metaFields{meta: meta}
	d.read("gguf", func(name string) (float64, bool) {
		v, ok := meta.Float(name)
		if meta.Has(name) && !ok {
			f.fail(damaged("%s is %s, want a number", name, meta.Text(name)))
		}
		return v, ok
	}, f.fail)
	return d, errors.Join(f.errs...)
}
