package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"
)

// MaxBytes bounds the size of a bundle; the largest tokenizers in use have about 35 MB.
const MaxBytes = 256 << 20

// maxFiles bounds the number of files in a bundle.
const maxFiles = 64

// files are the files that determine a model's tokens, besides those in templates.
var files = []string{"chat_template.jinja", "tokenizer.json", "tokenizer_config.json"}

// templates is the directory of the named templates.
const templates = "additional_chat_templates"

// ErrInvalid is wrapped by errors about a bundle's bytes.
var ErrInvalid = errors.New("bundle: invalid")

// Bundle is a tar archive of the files of a model directory that determine its tokens, without
// times and owners.
type Bundle struct {
	Data   []byte // must not be changed
	Digest string // hash of Data: 32 hexadecimal digits, equal for equal files
}

// Read makes the bundle of the model directory dir. It fails if there is no tokenizer.json.
func Read(dir string) (*Bundle, error) {
	names := slices.Clone(files)
	more, err := fs.Glob(os.DirFS(dir), path.Join(templates, "*.jinja")) // not filepath.Glob: dir may have characters of patterns
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	names = append(names, more...)
	contents := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) && name != "tokenizer.json" {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("bundle: %w", err)
		}
		contents[name] = data
	}
	return Make(contents)
}

// Make makes a bundle of files: contents maps the name of each to its bytes. It fails if there is
// no tokenizer.json, or if a name is not one that a bundle can have.
func Make(contents map[string][]byte) (*Bundle, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		data := contents[name]
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatPAX}); err != nil {
			return nil, fmt.Errorf("bundle: %s: %w", name, err)
		}
		if _, err := t.Write(data); err != nil {
			return nil, fmt.Errorf("bundle: %s: %w", name, err)
		}
	}
	if err := t.Close(); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	return Of(b.Bytes())
}

// Of makes a Bundle of data, the bytes of a bundle received from another process. The caller must
// not change data afterwards. The error wraps [ErrInvalid] if data is no bundle.
func Of(data []byte) (*Bundle, error) {
	b := &Bundle{Data: data}
	found := false
	err := b.each(func(name string, _ io.Reader) error {
		found = found || name == "tokenizer.json"
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: there is no tokenizer.json in it", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	sum := xxh3.Hash128(data).Bytes()
	b.Digest = fmt.Sprintf("%x", sum[:])
	return b, nil
}

// Unpack writes the files into dir, which must exist.
func (b *Bundle) Unpack(dir string) error {
	return b.each(func(name string, from io.Reader) error {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
		data, err := io.ReadAll(from)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
		return nil
	})
}

// each calls visit with the name and the contents of each file, in the order of the archive, and
// returns visit's first error. It refuses names that a bundle can't have, so that received data
// can't be written elsewhere.
func (b *Bundle) each(visit func(name string, from io.Reader) error) error {
	if len(b.Data) > MaxBytes {
		return fmt.Errorf("%w: %d bytes, want at most %d", ErrInvalid, len(b.Data), MaxBytes)
	}
	t := tar.NewReader(bytes.NewReader(b.Data))
	seen := map[string]bool{}
	for n := 0; ; n++ {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		case n == maxFiles:
			return fmt.Errorf("%w: more than %d files", ErrInvalid, maxFiles)
		case h.Typeflag != tar.TypeReg || !allowed(h.Name) || seen[h.Name]:
			return fmt.Errorf("%w: %.80q has no place in it", ErrInvalid, h.Name)
		case h.Size > int64(len(b.Data)): // a sparse file would be larger than the data received
			return fmt.Errorf("%w: %s is larger than the whole", ErrInvalid, h.Name)
		}
		seen[h.Name] = true
		if err := visit(h.Name, t); err != nil {
			return err
		}
	}
}

func allowed(name string) bool {
	if slices.Contains(files, name) {
		return true
	}
	folder, file := path.Split(name)
	return folder == templates+"/" && strings.HasSuffix(file, ".jinja") && !strings.ContainsAny(file, "\\:\x00") && filepath.IsLocal(file)
}
