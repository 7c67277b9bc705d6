package model

import "github.com/coppice-llm/coppice/engine/model/gguf"

// Package random, which makes the models that the tests open, imports this package. So TestMain sets these, in package
// model_test: they write a model of a preset, by its name.
var (
	Generate     func(dir, preset string, arch Arch, seed uint64) error
	GenerateGGUF func(path, preset string, arch Arch, seed uint64, t gguf.Type) error
)
