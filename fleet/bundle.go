package fleet

import (
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/events/bundle"
	"github.com/coppice-llm/coppice/internal/wording"
)

// Bundle reads the parts that gateways need of the model at path, a directory or a GGUF file: tokenizer and chat
// template, for Config.Bundle.
func Bundle(path string) (*bundle.Bundle, error) {
	if !model.IsGGUF(path) {
		b, err := bundle.Read(path)
		return b, wording.Error(err)
	}
	words, err := model.GGUFWords(path)
	if err != nil {
		return nil, wording.Error(err)
	}
	b, err := bundle.Make(words)
	return b, wording.Error(err)
}
