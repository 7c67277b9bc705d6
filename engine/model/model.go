package model

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Config is the shape of a model and the constants of its arithmetic. It is validated: every
// count is positive, Heads is a multiple of KVHeads, Hidden and HeadDim are multiples of 16.
// The meaning of the fields is that of Hugging Face's LlamaConfig.
type Config struct {
	Architecture string // the class in config.json; for GGUF, LlamaForCausalLM and so on
	Hidden       int    // width of the residual stream
	Layers       int
	Heads        int // query heads
	KVHeads      int // key and value heads; Heads/KVHeads query heads share one
	HeadDim      int // Heads*HeadDim may differ from Hidden
	FFN          int // width between gate/up and down
	Vocab        int // rows of the embedding and of the head
	MaxPositions int // longest sequence in tokens

	NormEps     float64      // added to the mean square under the root of RMSNorm
	RopeTheta   float64      // base of the rotary frequencies
	RopeScaling *RopeScaling // nil: plain rotary embedding
	RopeFactors []float32    `json:",omitempty"` // [HeadDim/2]: divisor of each frequency; nil: all 1
	TiedHead    bool         // the head shares the embedding's weights

	// The differences between the families. A bias is added to the product; QKNorm is an RMSNorm
	// with NormEps over each head of q and k, before the rotary embedding. ID hashes the JSON of
	// these fields, too: omitempty keeps the IDs of models without them unchanged.
	QKVBias bool `json:",omitempty"` // Layer.QBias, KBias and VBias are set
	OBias   bool `json:",omitempty"` // Layer.OBias is set
	MLPBias bool `json:",omitempty"` // Layer.GateBias, UpBias and DownBias are set
	QKNorm  bool `json:",omitempty"` // Layer.QNorm and KNorm are set

	// BOS and EOS are token ids below Vocab, from generation_config.json, or if that has none
	// from config.json; empty if neither has any.
	BOS, EOS []kv.Token

	// Generated reports whether package random made the model, so that its weights are random. It
	// does not affect ID.
	Generated bool `json:"-"`

	// DType is the type of the weights declared by the config, or that of the embedding if none
	// is declared. Each [Tensor] has its own type.
	DType kv.DType
}

// RopeScaling stretches the rotary frequencies like Llama 3.1 (rope_type "llama3"): wavelengths
// above OriginalMaxPositions/LowFreqFactor are multiplied by Factor, those below
// OriginalMaxPositions/HighFreqFactor are unchanged, and those between are interpolated.
type RopeScaling struct {
	Factor               float64
	LowFreqFactor        float64
	HighFreqFactor       float64
	OriginalMaxPositions int // in tokens
}

// Layer holds the weights of one transformer layer. Matrices are [out][in], as Hugging Face
// stores them, so row r is the weight vector of output r.
type Layer struct {
	AttnNorm *Tensor // [Hidden]
	Q        *Tensor // [Heads*HeadDim][Hidden]
	K, V     *Tensor // [KVHeads*HeadDim][Hidden]
	O        *Tensor // [Hidden][Heads*HeadDim]
	FFNNorm  *Tensor // [Hidden]
	Gate, Up *Tensor // [FFN][Hidden]
	Down     *Tensor // [Hidden][FFN]

	// Nil unless Config says that the model has them.
	QBias            *Tensor // [Heads*HeadDim]
	KBias, VBias     *Tensor // [KVHeads*HeadDim]
	OBias            *Tensor // [Hidden]
	QNorm, KNorm     *Tensor // [HeadDim], the same for all heads
	GateBias, UpBias *Tensor // [FFN]
	DownBias         *Tensor // [Hidden]
}

// Model is an opened model: configuration, weights and tokenizer. It is read-only and may be
// used from any goroutine until Close.
type Model struct {
	config *Config
	id     string
	embed  *Tensor
	layers []Layer
	norm   *Tensor
	head   *Tensor
	tok    *tokenizer.Tokenizer
	files  []*mapping
}

// Config returns the model's shape. The caller must not modify it.
func (m *Model) Config() *Config { return m.config }

// ID identifies the function that the model computes: 32 hex digits of XXH3-128 over the fields
// of the configuration that the logits depend on, and over name, type, shape and bytes of all
// weights in the order embedding, layers, norm, head. It depends neither on the directory nor
// on how the weights are split into shards, nor on stop tokens or the context length. It does
// not protect against forgery.
func (m *Model) ID() string { return m.id }

// Embed returns the token embedding, [Vocab][Hidden].
func (m *Model) Embed() *Tensor { return m.embed }

// Layers returns the transformer layers, first to last. The slice belongs to the model.
func (m *Model) Layers() []Layer { return m.layers }

// Norm returns the weight of the final RMSNorm, [Hidden].
func (m *Model) Norm() *Tensor { return m.norm }

// Head returns the output projection, [Vocab][Hidden]; it is Embed if Config.TiedHead.
func (m *Model) Head() *Tensor { return m.head }

// Tokenizer returns the model's tokenizer; its ids are below Config.Vocab. It stays valid after
// Close.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// Close unmaps the weights: every Tensor of the model becomes invalid, and reading one may
// crash the process. A second call has no effect.
func (m *Model) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.close())
	}
	m.files = nil
	return errors.Join(errs...)
}
