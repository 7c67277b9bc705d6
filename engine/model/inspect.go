package model

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

// Summary describes a model. Fields that its files do not have are empty.
type Summary struct {
	Architecture string // general.architecture or the class in config.json, supported or not
	Weights      string // the type with the most bytes in matrices, such as "Q4_K"
	Parameters   int64
	Bytes        int64 // size of the weights
	Context      int   // longest sequence in tokens
	KVValues     int   // numbers that the keys and values of one token have, over all layers
	Generated    bool  // the weights are random, like those of package random
	Err          error // the error of Open, nil if it would succeed
}

// Inspect describes the model at path. It reads the same files as Open, but not the weights'
// values, and so takes milliseconds. An error is in Summary.Err.
func Inspect(path string) Summary {
	if IsGGUF(path) {
		return inspectGGUF(path)
	}
	return inspectDirectory(path)
}

func inspectGGUF(path string) Summary {
	w, meta, err := mapGGUF(path)
	if err != nil {
		return Summary{Err: err}
	}
	defer w.close()
	s := Summary{Generated: generated(meta)}
	s.Architecture, _ = meta.String("general.architecture")
	s.weigh(w)
	m, err := checkGGUF(path, w, meta)
	s.finish(m, err)
	return s
}

func inspectDirectory(dir string) Summary {
	s := Summary{Architecture: namedArchitecture(dir)}
	config, err := readConfig(dir)
	w, wrong := openWeights(dir)
	if wrong == nil {
		defer w.close()
		s.weigh(w)
	}
	if err == nil {
		err = wrong
	}
	if err != nil {
		s.Err = err
		return s
	}
	m, err := checkDirectory(dir, config, w)
	s.finish(m, err)
	return s
}

// namedArchitecture returns the class in config.json, supported or not.
func namedArchitecture(dir string) string {
	data, err := readFile(filepath.Join(dir, "config.json"), maxConfigBytes)
	if err != nil {
		return ""
	}
	var config struct {
		Type  string   `json:"model_type"`
		Names []string `json:"architectures"`
	}
	if json.Unmarshal(data, &config) != nil {
		return ""
	}
	if config.Type == "" && len(config.Names) > 0 {
		return clip(strings.TrimSuffix(config.Names[0], "ForCausalLM"))
	}
	return clip(config.Type)
}

// weigh sets Parameters, Bytes and Weights from the tensors of w.
func (s *Summary) weigh(w *weights) {
	of := map[string]int64{}
	for _, name := range sortedKeys(w.tensors) {
		t := w.tensors[name]
		s.Parameters += int64(t.Len())
		s.Bytes += int64(len(t.Data))
		if len(t.Shape) == 2 {
			if of[t.Type()] += int64(len(t.Data)); of[t.Type()] > of[s.Weights] {
				s.Weights = t.Type()
			}
		}
	}
}

func (s *Summary) finish(m *Model, err error) {
	if s.Err = err; err == nil {
		s.Context, s.Generated = m.config.MaxPositions, m.config.Generated
		s.KVValues = 2 * m.config.Layers * m.config.KVHeads * m.config.HeadDim
	}
}
