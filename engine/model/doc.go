// Package model owns the files of a model: it reads a Hugging Face directory
// (config.json, safetensors, tokenizer.json) or a GGUF file, and writes generated ones.
// It never computes with weights and never downloads anything.
//
// Open maps the weights and checks every size before use. Everything that a Model
// returns is read-only and may be used from any goroutine until Close.
//
//	if err := model.Generate("nano", model.Spec{Preset: model.Nano, Seed: 1}); err != nil {
//		return err
//	}
//	m, err := model.Open("nano")
//	if err != nil {
//		return err // names the file and a remedy
//	}
//	defer m.Close()
//	row := make([]float32, m.Config().Hidden)
//	m.Embed().Widen(row, 7*len(row), 8*len(row)) // the embedding of token 7
//
// Supported are the dense families of [Archs] (LlamaForCausalLM, MistralForCausalLM,
// Qwen2ForCausalLM, Qwen3ForCausalLM) in the forms of transformers 4 and 5, with
// weights in F32, F16 and BF16, in one file or in shards; from GGUF (versions 2 and 3,
// whole or split) also the block formats of package gguf, with the tokenizer and chat
// template in its metadata. Any other feature of a config (other rotary embeddings,
// quantised weights, experts, attention windows shorter than the context) is refused
// by name with [ErrUnsupported]: ignoring it would give a model that outputs nonsense.
// Files may be hostile: sizes, offsets, depth and the length of messages are bounded,
// and an error names the file and the tensor.
//
// Generated models have random weights: they exercise every part of an engine,
// their logits depend on every token of the prefix, and they are the same bytes on
// every machine.
package model
