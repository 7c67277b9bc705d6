package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/coppice-llm/coppice/mempool/stores"
)

// sharedLoad fills a new shared directory by a server that it stops. It returns the load, the
// directory and the arguments of a further server there.
func sharedLoad(t *testing.T, prompts int) (l *tierLoad, dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	args = []string{"serve", "--addr", "127.0.0.1:0", "--model", nano(t), "--kv-tokens", "16384", "--no-page"}
	l = newTierLoad(t, prompts, 2100, args) // only whole extents are shared: 2,048 tokens of this model
	args = append(args, "--kv-share", dir+":128MiB", "--kv-token-time", "1s", "--kv-flush", "1s", "--drain", "1s")
	first := startCoppice(t, "first", append(args, "--kv-flush", "60s")...)
	l.askAll(t, asker, first)
	first.stop()
	if n := sound(t, dir); n != prompts {
		t.Fatalf("%d records are in the directory, want %d", n, prompts)
	}
	return l, dir, args
}

// askAll sends each prompt to a server, which must answer rightly.
func (l *tierLoad) askAll(t *testing.T, client *http.Client, p *process) {
	t.Helper()
	for n, want := range l.want {
		body, err := json.Marshal(map[string]any{"prompt": l.prompt(n), "max_tokens": 4, "temperature": 0, "ignore_eos": true})
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Post(p.url+"/v1/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body) // to its end, or the connection is not used again
		res.Body.Close()
		var u tierUsage
		if err == nil {
			err = json.Unmarshal(text, &u)
		}
		if err != nil || len(u.Choices) != 1 || u.Choices[0].Text != want {
			t.Fatalf("prompt %d is continued by %+v, want %q, %v", n, u, want, err)
		}
	}
}

// sound returns the number of records in a directory. All must be intact.
func sound(t *testing.T, dir string) (n int) {
	t.Helper()
	dirs, err := stores.Find(dir, nil)
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%d directories, %v", len(dirs), err)
	}
	for r := range dirs[0].Records(true) {
		if n++; r.Err != nil {
			t.Errorf("a record is damaged: %v", r.Err)
		}
	}
	return n
}

// TestServeWithoutDescriptors takes the free descriptors of a server that reads a shared directory. It
// must go on giving right answers, and leave the records to others.
func TestServeWithoutDescriptors(t *testing.T) {
	t.Parallel()
	l, dir, args := sharedLoad(t, 4)
	failed := 0
	for try := 0; failed == 0 && try < 5; try++ { // a lookup may be late on a stalled machine, and then nothing is read
		p := startCoppice(t, "without descriptors", args...)
		// The server can't accept a second connection, so a request waits until the first is free again.
		client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxConnsPerHost: 1}}
		res, err := client.Get(p.url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		before := limitFiles(t, p, 3) // new descriptors are refused, open ones stay
		l.askAll(t, client, p)
		limitFiles(t, p, before)
		failed = tierErrors(p)
		p.kill() // without a shutdown's writes
		if n := sound(t, dir); n != len(l.want) {
			t.Errorf("%d records are left, want %d", n, len(l.want))
		}
	}
	if failed == 0 {
		t.Error("no read failed")
	}
}

// tierErrors returns the number of failed operations of a server's tiers.
func tierErrors(p *process) (n int) {
	p.Helper()
	var doc struct{ Tiers []struct{ Errors int } }
	p.document("/v1/cache/stats", &doc)
	for _, tier := range doc.Tiers {
		n += tier.Errors
	}
	return n
}

// limitFiles sets the soft limit on a process's descriptors and returns the one before.
func limitFiles(t *testing.T, p *process, soft uint64) (before uint64) {
	t.Helper()
	var limit syscall.Rlimit
	call := func(to, from *syscall.Rlimit) {
		_, _, errno := syscall.Syscall6(syscall.SYS_PRLIMIT64, uintptr(p.cmd.Process.Pid), syscall.RLIMIT_NOFILE,
			uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), 0, 0)
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	call(nil, &limit)
	before, limit.Cur = limit.Cur, soft
	call(&limit, nil)
	return before
}

// TestServePipe puts pipes in the place of records. The server must go on giving right answers, and
// end when it is told to.
func TestServePipe(t *testing.T) {
	t.Parallel()
	l, dir, args := sharedLoad(t, 2)
	records, err := filepath.Glob(filepath.Join(dir, "*", "??", "*.kvx"))
	if err != nil || len(records) != len(l.want) {
		t.Fatalf("the records are %v, %v", records, err)
	}
	p := startCoppice(t, "with pipes", args...)
	for _, path := range records {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o660); err != nil {
			t.Fatal(err)
		}
	}
	l.askAll(t, asker, p)
	p.stop()
}

// TestCachePipe checks that a pipe in the place of a record neither blocks the commands on a directory
// nor stays after a prune, and that a prune that can't read a record removes nothing.
func TestCachePipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(stores.Config{Share: dir, ShareBytes: 1 << 20}, cacheIdentity("one"))
	if err != nil {
		t.Fatal(err)
	}
	fillStore(t, s)
	records, err := filepath.Glob(filepath.Join(dir, "*", "??", "*.kvx"))
	if err != nil || len(records) != 3 {
		t.Fatalf("%v, %v", records, err)
	}
	put := func(at string, make func(path string) error) {
		t.Helper()
		if err := errors.Join(os.Remove(at), make(at)); err != nil {
			t.Fatal(err)
		}
	}
	put(records[0], func(path string) error { return os.Symlink(path, path) }) // a loop: ELOOP
	if out, stderr, ok := command(t, "cache", "prune", dir); ok || !strings.Contains(stderr, filepath.Base(records[0])) {
		t.Errorf("prune of what can't be read: %s%s", out, stderr)
	}
	put(records[0], func(path string) error { return syscall.Mkfifo(path, 0o660) })
	for _, path := range records[1:] {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if out, _, ok := command(t, "cache", "verify", dir); ok || !strings.Contains(out, "not a regular file") {
		t.Errorf("verify of a pipe: %v, %s", ok, out)
	}
	if out, _, ok := command(t, "cache", "prune", dir); !ok || !strings.Contains(out, "removed 1 damaged") {
		t.Errorf("prune of a pipe: %v, %s", ok, out)
	}
	if out, _, ok := command(t, "cache", "verify", dir); !ok {
		t.Errorf("verify after prune: %s", out)
	}
}
