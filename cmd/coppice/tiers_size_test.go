package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/mempool/stores"
)

// extentsIn returns the number of intact extents below a directory of tiers.
func extentsIn(t *testing.T, dir string) (n int) {
	t.Helper()
	dirs, err := stores.Find(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dirs {
		for r := range dirs[i].Records(true) {
			if r.Err == nil {
				n++
			}
		}
	}
	return n
}

// TestServeSmallerSize restarts a server with a tenth of its disk's SIZE. It must say that nothing is
// dropped, and drop what does not fit only with --kv-shrink.
func TestServeSmallerSize(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), nano(t)
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "4096", "--no-page"}
	run := func(name string, more ...string) (said string) {
		p := startCoppice(t, name, append(args, more...)...)
		defer p.stop()
		return p.said.String()
	}
	l := tierLoad{tokens: 200}
	p := startCoppice(t, "first", append(args, "--kv-disk", dir+":80MiB", "--kv-write", "through")...)
	const prompts = 16 // of one extent each
	for n := range prompts {
		if _, _, err := l.ask(p.url, n); err != nil {
			t.Fatal(err)
		}
	}
	p.stop()
	if n := extentsIn(t, dir); n != prompts {
		t.Fatalf("%d extents are on disk, want %d", n, prompts)
	}
	if said := run("mistaken", "--kv-disk", dir+":8MiB"); !strings.Contains(said, "--kv-shrink drops them") || !strings.Contains(said, `"level":"warn"`) {
		t.Errorf("a smaller size is taken silently: %s", said)
	}
	if n := extentsIn(t, dir); n != prompts {
		t.Errorf("%d of %d extents are left by a server with a smaller size", n, prompts)
	}
	if said := run("meant", "--kv-disk", dir+":8MiB", "--kv-shrink"); !strings.Contains(said, "extents were dropped") {
		t.Errorf("nothing is said of what was dropped: %s", said)
	}
	if n := extentsIn(t, dir); n == 0 || n > 8 {
		t.Errorf("%d extents are left in 8 MiB", n)
	}
	if out, _, ok := command(t, "cache", "stat", dir); !ok || !strings.Contains(out, "disk tier of 8388608 bytes") {
		t.Errorf("stat does not show the size: %s", out)
	}
}

// TestServeLittleRoom gives a server a SIZE of 100 MiB on a file system of 12 MiB. It must use the room
// that is there, also for new prompts once the room is full. Mounting needs root.
func TestServeLittleRoom(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=12m", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %v, %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v, %s", err, out)
		}
	})
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", nano(t), "--kv-tokens", "1024", "--no-page",
		"--kv-disk", dir + "/kv:100MiB", "--kv-write", "through", "--kv-token-time", "1s"}
	p := startCoppice(t, "server", args...)
	defer p.stop()
	l := tierLoad{tokens: 200}
	for n := range 40 {
		if _, _, err := l.ask(p.url, n); err != nil {
			t.Fatal(err)
		}
	}
	p.stop()
	if n := extentsIn(t, dir+"/kv"); n < 6 {
		t.Errorf("%d extents are stored in 12 MiB", n)
	}
	p = startCoppice(t, "server again", args...)
	found := 0
	for n := 30; n < 40; n++ {
		_, u, err := l.ask(p.url, n)
		if err != nil {
			t.Fatal(err)
		}
		found += u.Usage.Details.Tiers["disk"]
	}
	if found == 0 {
		t.Error("none of the last prompts is on disk")
	}
}
