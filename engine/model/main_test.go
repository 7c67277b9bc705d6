package model_test

import (
	"os"
	"testing"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/gguf"
	"github.com/coppice-llm/coppice/engine/model/random"
)

func TestMain(m *testing.M) {
	model.Generate = func(dir, preset string, arch model.Arch, seed uint64) error {
		return random.Generate(dir, random.Spec{Preset: random.Preset(preset), Arch: arch, Seed: seed})
	}
	model.GenerateGGUF = func(path, preset string, arch model.Arch, seed uint64, t gguf.Type) error {
		return random.GenerateGGUF(path, random.Spec{Preset: random.Preset(preset), Arch: arch, Seed: seed}, t)
	}
	os.Exit(m.Run())
}
