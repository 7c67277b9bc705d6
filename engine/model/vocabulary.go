package model

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/coppice-llm/coppice/tokenizer"
	"github.com/coppice-llm/coppice/tokenizer/tokenfile"
)

// openTokenizer loads tokenizer.json and checks its ids.
func (m *Model) openTokenizer(dir string) error {
	t, err := tokenfile.Open(filepath.Join(dir, "tokenizer.json"))
	if errors.Is(err, tokenizer.ErrUnsupported) {
		return fmt.Errorf("model: the tokenizer.json in %s is not one that can be read: %w", dir, err)
	}
	if err != nil {
		return fmt.Errorf("model: no usable tokenizer.json in %s; complete the download, or %s: %w", dir, openHint, err)
	}
	m.tok = t
	return m.checkVocabulary(dir, "tokenizer.json", "vocab_size in config.json")
}

// checkVocabulary returns an error if the tokenizer has more tokens than the embedding has rows,
// or an end token past the last row. path, tokens and rows are only for messages.
func (m *Model) checkVocabulary(path, tokens, rows string) error {
	vocab := m.config.Vocab
	if n := m.tok.VocabSize(); n > vocab {
		return fmt.Errorf("%s: %w", path, damaged("%s has %d tokens, %s is %d; the files are of different models", tokens, n, rows, vocab))
	}
	for _, id := range m.tok.EOS() {
		if int(id) >= vocab {
			return fmt.Errorf("%s: %w", path, damaged("the tokenizer's end token is %d, %s is %d", id, rows, vocab))
		}
	}
	return nil
}
