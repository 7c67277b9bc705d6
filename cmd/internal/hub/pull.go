package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Progress is called often during a pull with the number of bytes that are complete and the total
// number of bytes. Calls are sequential.
type Progress func(done, total int64)

// Pull downloads the files that ref selects into the cache. Files that are already there are not
// downloaded again. An interrupted download continues where it stopped, also in another process.
// The commit of ref's revision is recorded last: until then Find returns the previous state.
// progress may be nil.
//
// Errors wrap ErrDenied, ErrMissing, ErrAnswer, ErrChoice, ErrHash or ErrFull, or are those of
// the network and the disk.
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
