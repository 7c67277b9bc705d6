package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/server"
	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/bundle"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// openTokenizer reads the tokenizer of the model at path, a directory or a GGUF file.
func openTokenizer(path string) (*tokenizer.Tokenizer, error) {
	if !model.IsGGUF(path) {
		return tokenizer.Open(filepath.Join(path, "tokenizer.json"))
	}
	words, err := model.GGUFWords(path)
	if err != nil {
		return nil, err
	}
	return tokenizer.Parse(words["tokenizer.json"], words["tokenizer_config.json"])
}

// openTemplate reads the chat template of the model at path.
func openTemplate(path string) (*chat.Template, error) {
	if !model.IsGGUF(path) {
		return chat.Open(path)
	}
	words, err := model.GGUFWords(path)
	if err != nil {
		return nil, err
	}
	t, err := chat.Parse(words["tokenizer_config.json"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// readBundle reads what a router needs of the model at path.
func readBundle(path string) (*bundle.Bundle, error) {
	if !model.IsGGUF(path) {
		return bundle.Read(path)
	}
	words, err := model.GGUFWords(path)
	if err != nil {
		return nil, err
	}
	return bundle.Make(words)
}

// tokenizerInfo makes the answer of /tokenizer_info for the model at path.
func tokenizerInfo(path string) ([]byte, error) {
	if model.IsGGUF(path) {
		words, err := model.GGUFWords(path)
		if err != nil {
			return nil, err
		}
		return server.TokenizerInfo(words["tokenizer_config.json"], "")
	}
	var files [2][]byte
	for i, name := range []string{"tokenizer_config.json", "chat_template.jinja"} {
		var err error
		if files[i], err = os.ReadFile(filepath.Join(path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return server.TokenizerInfo(files[0], string(files[1]))
}
