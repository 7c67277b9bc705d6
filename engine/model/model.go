package model

import (
	"errors"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/tokenizer"
)

// Config is the shape of a model and the constants of its arithmetic, checked:
// every count is positive, Heads is a multiple of KVHeads, Hidden and HeadDim
// are multiples of 16. Field names are ours, the meaning is that of Hugging
// Face's LlamaConfig.
type Config struct {
	Architecture string // as config.json has it; of GGUF, LlamaForCausalLM and so on
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
	RopeFactors []float32    `json:",omitempty"` // [HeadDim/2]: each frequency is divided by its own; nil: none is
	TiedHead    bool         // the head is the embedding

	// What the architectures differ in. A bias is added to the product, QKNorm is
	// an RMSNorm with NormEps over each head of q and k, before the rotary
	// embedding. ID hashes the JSON of all this: omitempty keeps the IDs of models
	// that have none of it.
	QKVBias bool `json:",omitempty"` // Layer.QBias, KBias and VBias are there
	OBias   bool `json:",omitempty"` // Layer.OBias is there
	MLPBias bool `json:",omitempty"` // Layer.GateBias, UpBias and DownBias are there
	QKNorm  bool `json:",omitempty"` // Layer.QNorm and KNorm are there

	// BOS and EOS are token ids below Vocab, from generation_config.json where
	// that names them, else from config.json; empty if neither does.
	BOS, EOS []kv.Token

	// Generated reports that [Generate] wrote the model: its weights are random. ID
	// does not depend on it.
	Generated bool `json:"-"`

	// DType is the type that the config declares for the weights, or that of the
	// embedding where it declares none. Each [Tensor] carries its own.
	DType kv.DType
}

// RopeScaling stretches the rotary frequencies the way Llama 3.1 does (rope_type
// "llama3"): wavelengths longer than OriginalMaxPositions/LowFreqFactor are
// multiplied by Factor, those shorter than OriginalMaxPositions/HighFreqFactor
// are kept, the ones between are interpolated.
type RopeScaling struct {
	Factor               float64
	LowFreqFactor        float64
	HighFreqFactor       float64
	OriginalMaxPositions int // in tokens
}

// Layer holds the weights of one transformer layer. Matrices are [out][in] as
// Hugging Face stores them, so row r is the weight vector of output r.
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

// Model is an opened model: configuration, weights and tokenizer. It
// is read-only and may be used from any goroutine until Close.
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

// Config is the model's shape. It belongs to the model: read, don't write.
func (m *Model) Config() *Config { return m.config }

// ID identifies what the model computes: 32 hex digits of XXH3-128 over the
// parts of the configuration that the logits depend on, and over name, type,
// shape and bytes of all weights in the order embedding, layers, norm, head. It
// depends neither on the directory nor on how the weights are cut into shards,
// nor on stop tokens or the context length. Not a defence against forgery.
func (m *Model) ID() string { return m.id }

// Embed is the token embedding, [Vocab][Hidden].
func (m *Model) Embed() *Tensor { return m.embed }

// Layers are the transformer layers from first to last. The slice is the model's.
func (m *Model) Layers() []Layer { return m.layers }

// Norm is the weight of the last RMSNorm, [Hidden].
func (m *Model) Norm() *Tensor { return m.norm }

// Head is the output projection, [Vocab][Hidden]; it is Embed if Config.TiedHead.
func (m *Model) Head() *Tensor { return m.head }

// Tokenizer is the model's tokenizer; its ids are below Config.Vocab. It stays
// valid after Close.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// Close unmaps the weights: every Tensor of the model is invalid from then on,
// and reading one may end the process. A second call does nothing.
func (m *Model) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.close())
	}
	m.files = nil
	return errors.Join(errs...)
}
