package tokenfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coppice-llm/coppice/tokenizer"
)

// Open loads the tokenizer.json at path. From a tokenizer_config.json in the same directory, if
// there is one, it reads bos_token, eos_token and add_bos_token. Errors are those of reading
// the files and of [Parse], with the path.
func Open(path string) (*tokenizer.Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: open: %w", err)
	}
	config, err := os.ReadFile(filepath.Join(filepath.Dir(path), "tokenizer_config.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: open: %w", err)
	}
	t, err := Parse(data, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Parse is tokenizer.Parse with all normalization forms. Its errors and its cost are those of tokenizer.Parse.
func Parse(tokenizerJSON, configJSON []byte) (*tokenizer.Tokenizer, error) {
	return tokenizer.Parse(tokenizerJSON, configJSON, forms)
}
