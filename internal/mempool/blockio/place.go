package blockio

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coppice-llm/coppice/mempool"
)

// IdentityFile holds, in a directory named by a fingerprint, the identity of that fingerprint.
const IdentityFile = "identity.json"

// Modes of created directories and files, before the umask. Records contain the text of prompts,
// so other users have no access.
const (
	DirMode  = 0o770
	FileMode = 0o660
)

// Kinds of directories.
const (
	Disk   = "disk"   // used by one process at a time
	Shared = "shared" // used by several processes
)

// Card is the content of an IdentityFile.
type Card struct {
	Kind     string           `json:"kind"`
	Identity mempool.Identity `json:"identity"`
	Bytes    int64            `json:"bytes,omitempty"` // most bytes of KV; 0: not recorded
}

// Place creates the directory of identity id below dir, unless it exists, and its IdentityFile. kind
// is Disk or Shared; in may be nil. It returns the directory's path, and the names of the directories
// of other identities below dir. It fails if the directory exists with another kind.
func Place(dir, kind string, id *mempool.Identity, in *Injector) (path string, others []string, err error) {
	path = filepath.Join(dir, id.Fingerprint().String())
	if err := os.MkdirAll(path, DirMode); err != nil {
		return "", nil, err
	}
	have, err := ReadCard(path)
	if err == nil && have.Kind != "" && have.Kind != kind {
		return "", nil, fmt.Errorf("%s is of the kind %s, not %s", path, have.Kind, kind)
	}
	if err != nil || have.Kind == "" || have.Identity != *id { // absent, or damaged: the directory's name determines its content
		if err := (Card{Kind: kind, Identity: *id, Bytes: have.Bytes}).write(path, in); err != nil {
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

// maxCard bounds the IdentityFile. An identity has a few names and numbers.
const maxCard = 1 << 20

// ReadCard reads the IdentityFile of a directory.
func ReadCard(path string) (c Card, err error) {
	b, err := ReadSmall(filepath.Join(path, IdentityFile), maxCard, nil)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	return c, err
}

// IsFingerprint reports whether a directory's name has the form of a fingerprint.
func IsFingerprint(name string) bool {
	return len(name) == 2*len(mempool.Fingerprint{}) && strings.Trim(name, "0123456789abcdef") == ""
}
