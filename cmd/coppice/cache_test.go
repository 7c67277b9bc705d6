package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/stores"
)

// fillStore puts three extents of one sequence into a store and closes it.
func fillStore(t *testing.T, s mempool.Store) {
	t.Helper()
	l := s.Info().Identity.Layout
	for i, x := range l.AppendExtents(nil, kv.Namespace{Salt: "tenant"}, make([]kv.Token, 40), nil) {
		pages := make([][]byte, l.Pages(&x))
		for i := range pages {
			pages[i] = make([]byte, l.PageBytes)
		}
		if err := s.Submit(mempool.Op{ID: mempool.OpID(i), Kind: mempool.Put, Extent: x, Pages: pages}); err != nil {
			t.Fatal(err)
		}
		<-s.Ready()
		if d := s.Poll(nil); len(d) != 1 || d[0].Err != nil {
			t.Fatal(d)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func cacheIdentity(model string) mempool.Identity {
	return mempool.Identity{ModelID: model, NumericsID: "cpu/test", PageLayout: mempool.PageLayout, Layout: mempool.Layout{PageTokens: 4, PageBytes: 1024, ExtentPages: 4}}
}

// damageFiles flips a bit in the pages of a record.
func damageFiles(t *testing.T, pattern string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v: %v", pattern, err)
	}
	f, err := os.OpenFile(paths[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{1}, 4096+100); err != nil {
		t.Fatal(err)
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	for kind, open := range map[string]func(dir, model string) (mempool.Store, error){
		"disk": func(dir, model string) (mempool.Store, error) {
			return openStore(stores.Config{Disk: dir, DiskBytes: 1 << 20}, cacheIdentity(model))
		},
		"shared": func(dir, model string) (mempool.Store, error) {
			return openStore(stores.Config{Share: dir, ShareBytes: 1 << 20}, cacheIdentity(model))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			for _, model := range []string{"one", "two"} {
				s, err := open(dir, model)
				if err != nil {
					t.Fatal(err)
				}
				fillStore(t, s)
			}
			checkCache(t, kind, dir)
		})
	}
}

func checkCache(t *testing.T, kind, dir string) {
	id := cacheIdentity("two")
	other := filepath.Join(dir, id.Fingerprint().String())
	out, _, ok := command(t, "cache", "stat", dir)
	if !ok || strings.Count(out, "3 extents, 40 tokens, 10240 bytes, 1 namespaces, 0 damaged, 0 foreign, 0 unreadable") != 2 || strings.Count(out, kind+" tier of 1048576 bytes") != 2 {
		t.Fatalf("stat: %v\n%s", ok, out)
	}
	out, _, ok = command(t, "cache", "ls", dir)
	if !ok || strings.Count(out, `salt="tenant"`) != 6 || strings.Count(out, "[32, 40)") != 2 {
		t.Errorf("ls: %v\n%s", ok, out)
	}
	out, _, _ = command(t, "cache", "ls", other, "--json")
	var line extentLine
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &line); err != nil || len(line.Key) != 64 || strings.Count(out, "\n") != 3 {
		t.Errorf("ls --json: %v\n%s", err, out)
	}
	if out, _, ok = command(t, "cache", "verify", dir); !ok || strings.Count(out, "3 extents verified") != 2 {
		t.Errorf("verify: %v\n%s", ok, out)
	}
	pattern := filepath.Join(other, "slots-0000")
	if kind == "shared" {
		pattern = filepath.Join(other, "??", "*.kvx")
	}
	damageFiles(t, pattern)
	out, stderr, ok := command(t, "cache", "verify", dir)
	if ok || !strings.Contains(out, "1 damaged") || !strings.Contains(stderr, "prune") {
		t.Errorf("verify of a damaged record: %v\n%s%s", ok, out, stderr)
	}
	if out, _, ok = command(t, "cache", "prune", dir, "--dry-run"); !ok || !strings.Contains(out, "would remove 1 damaged") {
		t.Errorf("prune --dry-run: %v\n%s", ok, out)
	}
	if out, _, ok = command(t, "cache", "prune", dir); !ok || !strings.Contains(out, "removed 1 damaged") {
		t.Errorf("prune: %v\n%s", ok, out)
	}
	if out, _, ok = command(t, "cache", "verify", dir, "--json"); !ok || strings.Contains(out, "checksum") {
		t.Errorf("verify after prune: %v\n%s", ok, out)
	}
	if out, _, ok = command(t, "cache", "prune", dir, "--fingerprint", filepath.Base(other)); !ok {
		t.Errorf("prune of a fingerprint: %s", out)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("the directory is there still")
	}
	for _, args := range [][]string{{"prune", dir, "--fingerprint", filepath.Base(other)}, {"ls", filepath.Join(dir, "nowhere")}, {"stat", t.TempDir()}} {
		if _, _, ok := command(t, append([]string{"cache"}, args...)...); ok {
			t.Errorf("%v succeeds", args)
		}
	}
}

// TestCacheUnreadable: a record that the system can't read is not called damaged, and prune removes
// neither it nor what continues it.
// openStore opens the only store that c names.
func openStore(c stores.Config, id mempool.Identity) (mempool.Store, error) {
	c.Required = true
	opened, _, err := c.Open(id, nil)
	if err != nil {
		return nil, err
	}
	return opened[0], nil
}

func TestCacheUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(stores.Config{Share: dir, ShareBytes: 1 << 20}, cacheIdentity("one"))
	if err != nil {
		t.Fatal(err)
	}
	fillStore(t, s)
	paths, err := filepath.Glob(filepath.Join(dir, "*", "??", "*.kvx"))
	if err != nil || len(paths) != 3 {
		t.Fatalf("%q: %v", paths, err)
	}
	if err := os.Rename(paths[0], paths[0]+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(paths[0], paths[0]); err != nil { // opening it fails, also for root
		t.Fatal(err)
	}
	out, _, ok := command(t, "cache", "stat", dir)
	if !ok || !strings.Contains(out, "2 extents, ") || !strings.Contains(out, "0 damaged, 0 foreign, 1 unreadable") || !strings.Contains(out, "unreadable: "+paths[0]) {
		t.Errorf("stat: %v\n%s", ok, out)
	}
	if _, stderr, ok := command(t, "cache", "verify", dir); ok || !strings.Contains(stderr, "1 records can't be read") {
		t.Errorf("verify: %v, %s", ok, stderr)
	}
	if out, _, ok := command(t, "cache", "prune", dir); ok || !strings.Contains(out, "unchanged") {
		t.Errorf("prune: %v, %s", ok, out)
	}
	for _, path := range paths[1:] {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestCacheInUse checks that a disk tier which a process has open is unchanged.
func TestCacheInUse(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(stores.Config{Disk: dir, DiskBytes: 1 << 20}, cacheIdentity("one"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if out, _, _ := command(t, "cache", "stat", dir); !strings.Contains(out, "in use") {
		t.Errorf("stat: %s", out)
	}
	if out, _, ok := command(t, "cache", "prune", dir); ok || !strings.Contains(out, "unchanged") {
		t.Errorf("prune: %v\n%s", ok, out)
	}
}
