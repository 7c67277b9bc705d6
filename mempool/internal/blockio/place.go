package blockio

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/record"
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
	Keys     []string         `json:"keys,omitempty"`  // ids of the secrets that seal records, or have sealed some
}

// Opens returns an error that wraps mempool.ErrForeign if the records are sealed, and s has no secret
// that sealed any of them.
func (c *Card) Opens(s *record.Sealer) error {
	ids := s.IDs()
	known := slices.ContainsFunc(c.Keys, func(k string) bool { return slices.Contains(ids, k) })
	switch sealed := strings.Join(c.Keys, ", "); {
	case !c.Identity.Sealed, known, s != nil && len(c.Keys) == 0:
		return nil
	case s == nil:
		return fmt.Errorf("%w: sealed with a key of id %s, and none is given; give --kv-key FILE", mempool.ErrForeign, sealed)
	default:
		return fmt.Errorf("%w: sealed with a key of id %s, but the ids of the given ones are %s; give that key too, as a further line of "+
			"the file; if it is lost, coppice cache prune --fingerprint removes the KV", mempool.ErrForeign, sealed, strings.Join(ids, ", "))
	}
}

// admit adds the id of the secret that seals to c.Keys, and reports whether that changed c.
func (c *Card) admit(s *record.Sealer) bool {
	if s == nil || slices.Contains(c.Keys, s.IDs()[0]) {
		return false
	}
	c.Keys = append(c.Keys, s.IDs()[0])
	return true
}

// Place creates the directory of identity id below dir, unless it exists, and its IdentityFile. kind
// is Disk or Shared; in may be nil; seal is the Sealer of sealed records. It returns the directory's
// path, and the names of the directories of other identities below dir. It fails if the directory
// exists with another kind, and with mempool.ErrForeign if other secrets sealed its records.
func Place(dir, kind string, id *mempool.Identity, seal *record.Sealer, in *Injector) (path string, others []string, err error) {
	path = filepath.Join(dir, id.Fingerprint().String())
	if err := os.MkdirAll(path, DirMode); err != nil {
		return "", nil, err
	}
	have, err := ReadCard(path)
	if err == nil && have.Kind != "" && have.Kind != kind {
		return "", nil, fmt.Errorf("%s is of the kind %s, not %s", path, have.Kind, kind)
	}
	if err != nil || have.Kind == "" || have.Identity != *id { // absent, or damaged: the directory's name determines its content
		have, err = Card{Identity: *id, Bytes: have.Bytes, Keys: have.Keys}, nil
	}
	if err := have.Opens(seal); err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	if fresh := have.Kind == ""; have.admit(seal) || fresh {
		have.Kind = kind
		if err := have.write(path, in); err != nil {
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

// Readmit records the secret that seals in the IdentityFile of directory path, if another process has
// overwritten that.
func Readmit(path string, c Card, seal *record.Sealer, in *Injector) error {
	if !c.admit(seal) {
		return nil
	}
	return c.write(path, in)
}

// Counterpart returns a warning if dir has a directory of the same identity as id but sealed where id's
// records are not, or not sealed where id's are.
func Counterpart(dir string, id mempool.Identity) (warnings []string) {
	sealed := id.Sealed
	id.Sealed = !sealed
	path := filepath.Join(dir, id.Fingerprint().String())
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	if sealed {
		return []string{fmt.Sprintf("%s has KV in clear text, written without a key, which is not used; "+
			"coppice cache prune %s --fingerprint %s removes it", path, dir, filepath.Base(path))}
	}
	return []string{path + " has sealed KV, which can't be used without its key, and new KV is written in clear text; give --kv-key FILE"}
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
