package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Progress is told how many bytes of a pull are there, of how many. Calls come one at a
// time, often.
type Progress func(done, total int64)

// Pull downloads what ref means into the cache, or finds that it is there. A download
// that was cut goes on where it stopped, also in another process. The revision's ref is
// set last: until then Find finds what was there before.
//
// Errors wrap ErrDenied, ErrMissing, ErrAnswer, ErrChoice, ErrHash or ErrFull, or are those
// of the network and the disk.
func (h *Hub) Pull(ctx context.Context, ref Ref, progress Progress) (*Model, error) {
	commit, files, err := h.list(ctx, ref)
	if err != nil {
		return nil, err
	}
	c, err := choose(files, ref.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref.Repo, err)
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	dir, total, before := h.repoDir(ref.Repo), c.bytes(), int64(0)
	for _, f := range c.files {
		d := &download{hub: h, repo: ref.Repo, commit: commit, file: f, dir: dir,
			progress: func(done int64) { progress(before+done, total) }}
		if err := d.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", ref.Repo, f.path, err)
		}
		if err := link(dir, commit, f); err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
		before += f.size
	}
	progress(total, total)
	if !commitForm.MatchString(ref.Revision) {
		if err := replace(filepath.Join(dir, "refs", filepath.FromSlash(ref.Revision)), func(tmp string) error {
			return os.WriteFile(tmp, []byte(commit), 0o644)
		}); err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
	}
	return h.model(ref, commit, c), nil
}

// link puts a blob into a snapshot, under its path: by a relative link, or where the file
// system has none by a second name of the same file.
func link(dir, commit string, f file) error {
	at := filepath.Join(dir, "snapshots", commit, filepath.FromSlash(f.path))
	up := strings.Repeat("../", 2+strings.Count(f.path, "/"))
	if to, err := os.Readlink(at); err == nil && filepath.ToSlash(to) == up+"blobs/"+f.hash {
		return nil
	}
	return replace(at, func(tmp string) error {
		if os.Symlink(filepath.FromSlash(up+"blobs/"+f.hash), tmp) == nil {
			return nil
		}
		return os.Link(filepath.Join(dir, "blobs", f.hash), tmp)
	})
}

// tmpSuffix ends names of what is not there yet.
const tmpSuffix = ".tmp"

// replace makes a file at path by making it under another name first.
func replace(path string, make func(tmp string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + "." + rand.Text() + tmpSuffix
	if err := make(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}
