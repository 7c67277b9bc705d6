package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/engine/model"
)

// exampleModel is a small chat model that this program can load, for use in messages.
const exampleModel = "bartowski/SmolLM2-135M-Instruct-GGUF"

// unknownMemory is the largest size of a model, in bytes, if the machine's memory is
// unknown.
const unknownMemory = 4 << 30

// cachedModel returns the newest model of the cache that can be loaded and takes at most
// half of the memory; nil if there is none. It does not contact the hub.
func cachedModel() *hub.Model {
	h, err := openHub()
	if err != nil {
		return nil
	}
	found, err := h.Models()
	if err != nil {
		return nil
	}
	return pickModel(found, memoryBytes())
}

// pickModel does what cachedModel does, for a list of models and a machine with this much memory,
// in bytes; 0 means unknown.
func pickModel(found []*hub.Model, memory int64) *hub.Model {
	most := memory / 2
	if memory == 0 {
		most = unknownMemory
	}
	slices.SortStableFunc(found, func(a, b *hub.Model) int { return b.Modified.Compare(a.Modified) })
	for _, m := range found {
		if m.Bytes <= most && model.Inspect(m.Path).Err == nil {
			return m
		}
	}
	return nil
}

// modelOrCached does what modelDir does, but without --model it prefers a suitable model of the
// cache to a generated model. origin then explains the choice, for printing after the model's
// name.
func (f *nodeFlags) modelOrCached(ctx context.Context) (dir, origin string, remove func(), err error) {
	if f.Model == "" {
		if m := cachedModel(); m != nil {
			return m.Path, fmt.Sprintf(" (no --model given: using %v from the Hugging Face cache; coppice models lists others)", m.Ref), func() {}, nil
		}
		origin = " (no --model given: the weights are random, the text means nothing; for a real one: coppice pull " + exampleModel + ")"
	}
	dir, remove, err = f.modelDir(ctx)
	return dir, origin, remove, err
}
