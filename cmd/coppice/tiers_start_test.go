package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/mempool/stores"
)

// TestServeSickDirectory starts servers on directories that are damaged, not writable or open to other
// users. Each must start, answer, and name the directory in a warning; with --kv-required one that
// can't use its tier must refuse.
func TestServeSickDirectory(t *testing.T) {
	t.Parallel()
	base, model := t.TempDir(), nano(t)
	args := []string{"serve", "--addr", "127.0.0.1:0", "--model", model, "--kv-tokens", "1024", "--no-page"}
	const without = "runs without it"
	for i, tc := range []struct {
		name, says string
		harm       func(dir, inner string) error
	}{
		{"index", without, func(_, inner string) error {
			os.Remove(filepath.Join(inner, "index"))
			return os.MkdirAll(filepath.Join(inner, "index", "x"), 0o700)
		}},
		{"identity", "", func(_, inner string) error {
			return os.WriteFile(filepath.Join(inner, "identity.json"), []byte("null"), 0o600)
		}},
		{"no directory", without, func(dir, _ string) error {
			os.RemoveAll(dir)
			return os.WriteFile(dir, nil, 0o600)
		}},
		{"mode", "every user of the machine", func(dir, _ string) error { return os.Chmod(dir, 0o777) }},
		{"link", "symbolic link", func(dir, _ string) error {
			os.Rename(dir, dir+"-moved")
			return os.Symlink(dir+"-moved", dir)
		}},
	} {
		for _, kind := range []string{"disk", "share"} {
			if kind == "share" && tc.name == "index" {
				continue
			}
			dir := filepath.Join(base, fmt.Sprint(i, kind))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			flags := append(args, "--kv-"+kind, dir+":16MiB")
			startCoppice(t, "first", flags...).stop()
			dirs, err := stores.Find(dir, nil)
			if err != nil || len(dirs) != 1 {
				t.Fatalf("%v: %v", dirs, err)
			}
			if err := tc.harm(dir, dirs[0].Path); err != nil {
				t.Fatal(err)
			}
			p := startCoppice(t, tc.name, flags...)
			l := tierLoad{tokens: 200}
			if _, _, err := l.ask(p.url, 0); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			p.stop()
			said := p.said.String()
			if warns := strings.Contains(said, `"level":"warn"`); !strings.Contains(said, tc.says) || warns && !strings.Contains(said, dir) || warns != (tc.says != "") {
				t.Errorf("%s %s: the server says %s", tc.name, kind, said)
			}
			if tc.says != without {
				continue
			}
			if _, out, ok := command(t, append(flags, "--kv-required")...); ok || !strings.Contains(out, dir) {
				t.Errorf("%s %s: with --kv-required: ok %v, says %s", tc.name, kind, ok, out)
			}
		}
	}
}

// TestServeTierFails takes a shared directory away from a running server and gives it back. The server
// must answer throughout, log one line when writes begin to fail and one when they work again, and
// show the failures in its metrics.
func TestServeTierFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startCoppice(t, "server", "serve", "--addr", "127.0.0.1:0", "--model", nano(t), "--kv-tokens", "8192", "--no-page",
		"--kv-share", dir+":512MiB", "--kv-write", "through", "--kv-token-time", "1s")
	dirs, err := stores.Find(dir, nil)
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v: %v", dirs, err)
	}
	asked, l := 0, tierLoad{tokens: 2100} // only whole extents are shared: 2,048 tokens of this model
	askUntil := func(line string) {
		t.Helper()
		for ; !strings.Contains(p.said.String(), line) && asked < 200; asked++ {
			if _, _, err := l.ask(p.url, asked); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(p.said.String(), line); n != 1 {
			t.Errorf("%d lines with %s", n, line)
		}
	}
	inner, away := dirs[0].Path, dirs[0].Path+"-away"
	if err := os.Rename(inner, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inner, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const put = `"tier":"shared","directory":`
	askUntil(`"tier begins to fail",` + put)
	if said := p.said.String(); !strings.Contains(said, "not a directory") || !strings.Contains(said, fmt.Sprintf("%q", dir)) {
		t.Errorf("the line has no cause or directory: %s", said)
	}
	figures := p.figures()
	if figures[`coppice_tier_failing{model_name="nano",tier="shared"}`] != 1 || figures[`coppice_tier_io_errors_total{model_name="nano",tier="shared"}`] == 0 {
		t.Errorf("the metrics do not show the failures: %v", figures)
	}
	if out, _, ok := command(t, "cache", "stat", "--url", p.url); !ok || !strings.Contains(out, "shared tier is failing") || strings.Contains(out, " 0 I/O errors") {
		t.Errorf("cache stat does not show the failures: %v, %s", ok, out)
	}
	if err := os.Remove(inner); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, inner); err != nil {
		t.Fatal(err)
	}
	askUntil(`"tier works again",` + put)
}
