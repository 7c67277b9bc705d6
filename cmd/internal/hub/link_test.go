package hub

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
)

// TestPullKeepsHardLinks: where a file of a snapshot is a hard link to its blob, another pull does not replace it. Windows
// would refuse that while a server has the file open.
func TestPullKeepsHardLinks(t *testing.T) {
	data := noise(1000)
	f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
	h := f.open(t, dir)
	m, err := h.Pull(t.Context(), testRef(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(m.Path), os.Link(blobPath(dir, data), m.Path)); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(m.Path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pull(t.Context(), testRef(""), nil); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Lstat(m.Path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced by %v, %v", after, err)
	}
}

// TestPullsAtOnce: of several concurrent pulls of one file, one downloads it.
func TestPullsAtOnce(t *testing.T) {
	data := noise(500_000)
	f, dir := startHub(t, map[string][]byte{testFile: data}), t.TempDir()
	var wg sync.WaitGroup
	for range 6 {
		h := f.open(t, dir)
		wg.Go(func() {
			m, err := h.Pull(t.Context(), testRef(""), nil)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(m.Path); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes: %v", len(got), err)
			}
		})
	}
	wg.Wait()
	loads := 0
	for _, r := range f.asked() {
		if r == "/"+testFile {
			loads++
		}
	}
	if loads != 1 {
		t.Errorf("loaded %d times", loads)
	}
}
