package blockio

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coppice-llm/coppice/mempool"
)

// IdentityFile says, in a directory named by a fingerprint, what that stands for.
const IdentityFile = "identity.json"

// Modes of what is made, of which the system takes its umask: records have the text of
// prompts in them, so they are not for everybody.
const (
	DirMode  = 0o770
	FileMode = 0o660
)

// Kinds of directories.
const (
	Disk   = "disk"   // of one process at a time
	Shared = "shared" // of several
)

// Card is the content of an IdentityFile.
type Card struct {
	Kind     string           `json:"kind"`
	Identity mempool.Identity `json:"identity"`
}

// Place makes the directory of an identity below dir, unless it is there, and names those
// of others. Temporary files that a killed process left in it go.
func Place(dir, kind string, id *mempool.Identity, in *Injector) (path string, others []string, err error) {
	path = filepath.Join(dir, id.Fingerprint().String())
	if err := os.MkdirAll(path, DirMode); err != nil {
		return "", nil, err
	}
	have, err := ReadCard(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b, err := json.MarshalIndent(Card{kind, *id}, "", "  ")
		if err != nil {
			return "", nil, err
		}
		if err := Replace(filepath.Join(path, IdentityFile), append(b, '\n'), in); err != nil {
			return "", nil, err
		}
	case err == nil && have.Kind != kind:
		return "", nil, fmt.Errorf("%s is of the kind %s, not %s", path, have.Kind, kind)
	case err != nil: // damaged: what it says is known from the name
		b, _ := json.MarshalIndent(Card{kind, *id}, "", "  ")
		if err := Replace(filepath.Join(path, IdentityFile), append(b, '\n'), in); err != nil {
			return "", nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		if e.IsDir() && IsFingerprint(e.Name()) && e.Name() != filepath.Base(path) {
			others = append(others, e.Name())
		}
	}
	return path, others, nil
}

// ReadCard reads what a directory says of itself.
func ReadCard(path string) (c Card, err error) {
	b, err := os.ReadFile(filepath.Join(path, IdentityFile))
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	return c, err
}

// IsFingerprint reports whether a directory's name can be a fingerprint.
func IsFingerprint(name string) bool {
	return len(name) == 2*len(mempool.Fingerprint{}) && strings.Trim(name, "0123456789abcdef") == ""
}
