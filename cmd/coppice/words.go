package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/server"
)

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
