// Package model owns the files of a model: it reads a Hugging Face directory
// (config.json, safetensors, tokenizer.json) or a GGUF file. It never computes with weights,
// writes no file and never downloads anything. Package random makes models with random weights.
//
// Open maps the weights and checks every size before use. Everything that a Model
// returns is read-only and may be used from any goroutine until Close.
//
//	m, err := model.Open("path/to/model")
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
package model
