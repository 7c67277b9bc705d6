// Package speak holds the model that commands run when they are given none: 3.6 million
// parameters, trained by tools/speak on Newton's Opticks and other prose in the public domain. It
// speaks in the language of the Opticks, knows nothing and reasons about nothing.
package speak

import (
	_ "embed" // for the model's file
	"fmt"
	"os"
	"path/filepath"
)

//go:embed speak.gguf
var file []byte

// name is the model's name, as /v1/models lists it.
const name = "coppice-speak"

// Write writes the model's GGUF file into a directory of its own in the temporary
// directory. remove deletes both.
func Write() (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "coppice-")
	if err != nil {
		return "", nil, fmt.Errorf("a directory for the model %s: %w", name, err)
	}
	path, remove = filepath.Join(dir, name+".gguf"), func() { os.RemoveAll(dir) }
	if err := os.WriteFile(path, file, 0o600); err != nil {
		remove()
		return "", nil, fmt.Errorf("the model %s: %w", name, err)
	}
	return path, remove, nil
}
