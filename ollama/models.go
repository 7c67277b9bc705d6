package ollama

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Version is the version of Ollama whose API this package follows. Clients compare it with the oldest one that
// they work with.
const Version = "0.13.0"

// never is the time at which a model leaves the memory.
var never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Facts describe a model. Fields that are not known are zero.
type Facts struct {
	Names         []string // without tags; the first one is the default
	Identity      string   // of the weights, for the digest
	Format        string   // of its files: gguf, safetensors
	Architecture  string   // general.architecture of a GGUF file, or the class in config.json
	Weights       string   // type of most weights: Q4_K
	Parameters    int64
	Bytes         int64
	ContextTokens int
	EmbeddingSize int
	Modified      time.Time
	Template      string
	Capabilities  []string // completion, tools, thinking, embedding
}

type details struct {
	ParentModel       string   `json:"parent_model"`
	Format            string   `json:"format"`
	Family            string   `json:"family"`
	Families          []string `json:"families"`
	ParameterSize     string   `json:"parameter_size"`
	QuantizationLevel string   `json:"quantization_level"`
}

// family returns the family's name as Ollama writes it: LlamaForCausalLM is llama.
func (f *Facts) family() string {
	return strings.ToLower(strings.TrimSuffix(f.Architecture, "ForCausalLM"))
}

func (f *Facts) details() details {
	d := details{Format: f.Format, Family: f.family(), Families: []string{}, QuantizationLevel: f.Weights}
	if d.Family != "" {
		d.Families = append(d.Families, d.Family)
	}
	switch n := float64(f.Parameters); {
	case n >= 1e9:
		d.ParameterSize = fmt.Sprintf("%.1fB", n/1e9)
	case n >= 1e6:
		d.ParameterSize = fmt.Sprintf("%.2fM", n/1e6)
	case n > 0:
		d.ParameterSize = fmt.Sprintf("%.0fK", n/1e3)
	}
	return d
}

func (f *Facts) digest() string {
	sum := sha256.Sum256([]byte(f.Identity))
	return hex.EncodeToString(sum[:])
}

type listed struct {
	Name          string     `json:"name"`
	Model         string     `json:"model"`
	ModifiedAt    *time.Time `json:"modified_at,omitempty"`
	Size          int64      `json:"size"`
	Digest        string     `json:"digest"`
	Details       details    `json:"details"`
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`
	SizeVRAM      *int64     `json:"size_vram,omitempty"`
	ContextLength int        `json:"context_length,omitempty"`
}

// Tags returns the answer of /api/tags. All names of a model are listed.
func Tags(models ...Facts) []byte {
	return list(models, func(f *Facts, l *listed) { l.ModifiedAt = &f.Modified })
}

// Running returns the answer of /api/ps: all models are in memory, for ever.
func Running(models ...Facts) []byte {
	return list(models, func(f *Facts, l *listed) {
		l.ExpiresAt, l.SizeVRAM, l.ContextLength = &never, &f.Bytes, f.ContextTokens
	})
}

func list(models []Facts, more func(f *Facts, l *listed)) []byte {
	all := struct {
		Models []listed `json:"models"`
	}{[]listed{}}
	for i := range models {
		f := &models[i]
		for _, name := range f.Names {
			l := listed{Name: tagged(name), Model: tagged(name), Size: f.Bytes, Digest: f.digest(), Details: f.details()}
			more(f, &l)
			all.Models = append(all.Models, l)
		}
	}
	return marshal(all)
}

// Show returns the answer of /api/show.
func (f *Facts) Show() []byte {
	family := f.family()
	info := map[string]any{"general.architecture": family}
	for name, n := range map[string]int64{"general.parameter_count": f.Parameters, family + ".context_length": int64(f.ContextTokens), family + ".embedding_length": int64(f.EmbeddingSize)} {
		if n > 0 {
			info[name] = n
		}
	}
	return marshal(struct {
		Modelfile    string         `json:"modelfile"`
		Parameters   string         `json:"parameters"`
		Template     string         `json:"template"`
		Details      details        `json:"details"`
		ModelInfo    map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
		ModifiedAt   time.Time      `json:"modified_at"`
	}{"", "", f.Template, f.details(), info, append([]string{}, f.Capabilities...), f.Modified})
}

// VersionAnswer returns the answer of /api/version. own is the server's own version.
func VersionAnswer(own string) []byte {
	return marshal(struct {
		Version string `json:"version"`
		Coppice string `json:"coppice"`
	}{Version, own})
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("ollama: a description of models can't be written: " + err.Error())
	}
	return b
}
