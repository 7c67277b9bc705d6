// Package random makes models with random weights, for tests, benchmarks and demonstrations: a directory laid out like Hugging
// Face's, a GGUF file, or a model in memory. It owns their shapes and the generator of their weights; package model opens them.
// It never reads a model but to find out whether it may replace one. Its functions may be called from any goroutine.
//
//	if err := random.Generate("nano", random.Spec{Preset: random.Nano, Seed: 1}); err != nil {
//		return err // wraps ErrExists if the directory holds another model
//	}
//	m, err := model.Open("nano")
//
// Such models exercise every part of an engine: their logits depend on every token of the prefix, and their files are the
// same bytes on every machine. They output nonsense.
package random
