package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Remove removes the files of the model that ref selects from the snapshot of its revision, and the blobs that no
// other snapshot has. It returns the bytes that this freed. When a repository has no file left, its directory goes.
// The error wraps fs.ErrNotExist if the model is not in the cache, and ErrChoice if ref matches several files.
//
// Another process that has the model open keeps it until it closes the files, except on Windows, where Remove
// fails. A pull of the same files at the same time downloads again what Remove took.
func (h *Hub) Remove(ref Ref) (freed int64, err error) {
	commit, files, err := h.snapshot(ref.Repo, ref.Revision)
	if err != nil {
		return 0, fmt.Errorf("hub: %v is not in %s: %w", ref, h.cfg.Dir, err)
	}
	c, err := choose(files, ref.File)
	if err != nil {
		if errors.Is(err, ErrChoice) {
			return 0, err
		}
		return 0, fmt.Errorf("hub: %v is not in %s: %w: %w", ref, h.cfg.Dir, fs.ErrNotExist, err)
	}
	dir := h.repoDir(ref.Repo)
	root := filepath.Join(dir, "snapshots", commit)
	var blobs []string
	for _, f := range c.files {
		at := filepath.Join(root, filepath.FromSlash(f.path))
		if to, err := os.Readlink(at); err == nil {
			blobs = append(blobs, filepath.Join(filepath.Dir(at), to))
		} else {
			freed += f.size // a file of its own: the cache of a system without symbolic links
		}
		if err := os.Remove(at); err != nil {
			return freed, fmt.Errorf("hub: %w", err)
		}
	}
	used, left := targets(dir)
	for _, blob := range blobs {
		if used[blob] || filepath.Dir(blob) != filepath.Join(dir, "blobs") {
			continue
		}
		if info, err := os.Stat(blob); err == nil {
			freed += info.Size()
		}
		if err := os.Remove(blob); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return freed, fmt.Errorf("hub: %w", err)
		}
	}
	if left == 0 && strings.HasPrefix(filepath.Base(dir), "models--") {
		if err := os.RemoveAll(dir); err != nil {
			return freed, fmt.Errorf("hub: %w", err)
		}
	}
	return freed, nil
}

// targets returns the blobs to which the snapshots of a repository's directory link, and the number of the
// snapshots' files.
func targets(dir string) (used map[string]bool, files int) {
	used = map[string]bool{}
	filepath.WalkDir(filepath.Join(dir, "snapshots"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		files++
		if to, err := os.Readlink(p); err == nil {
			used[filepath.Join(filepath.Dir(p), to)] = true
		}
		return nil
	})
	return used, files
}
