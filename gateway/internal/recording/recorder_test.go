package recording

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/internal/leaks"
	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/router/decisions"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func config(path string) Config {
	return Config{
		Path: path, MaxBytes: 1 << 30, Head: func() decisions.Head { return decisions.Head{BlockTokens: 16, Policy: "latency"} },
		Describe: func(w kv.Rank) decisions.Worker {
			return decisions.Worker{Name: fmt.Sprint("w", w.Worker), ID: w.Worker}
		},
	}
}

// entry returns a decision for a prompt of this many blocks, which begins as all others.
func entry(i, blocks int) Entry {
	e := Entry{Decision: &decisions.Decision{At: time.Duration(i), Attempt: 1, PromptTokens: 16 * blocks, Candidates: make([]decisions.Candidate, 2)},
		Chosen: kv.Rank{Worker: kv.WorkerID(i % 3)}, Ranks: []kv.Rank{{Worker: kv.WorkerID(i % 3)}, {Worker: 7}}}
	for b := range blocks - 1 {
		e.Hashes = append(e.Hashes, kv.BlockHash(1+b))
	}
	e.Hashes = append(e.Hashes, kv.BlockHash(1_000_000+i))
	return e
}

func read(t *testing.T, path string) *decisions.Recording {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := decisions.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestFilesAreBounded: at half of the bytes a new file begins, which can be read alone.
func TestFilesAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	cfg := config(path)
	cfg.MaxBytes = 100 << 10
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	const all = 900 // below the length of the queue
	for i := range all {
		r.Add(entry(i, 20))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if written, dropped := r.Counts(); written != all || dropped != 0 {
		t.Errorf("%d are written and %d dropped of %d", written, dropped, all)
	}
	old, last := read(t, path+".1"), read(t, path)
	a, b := len(old.Decisions), len(last.Decisions)
	if a == 0 || b == 0 || a+b >= all || last.Decisions[b-1].At != all-1 || last.Decisions[0].At != old.Decisions[a-1].At+1 {
		t.Errorf("files of %d and %d decisions of %d, the last of %v", a, b, all, last.Decisions[b-1].At)
	}
	for _, rec := range []*decisions.Recording{old, last} {
		if n := len(rec.Chain(&rec.Decisions[len(rec.Decisions)-1], nil)); n != 20 || len(rec.Workers) != 4 {
			t.Errorf("a prompt of %d blocks, %d workers", n, len(rec.Workers))
		}
	}
	size := int64(0)
	for _, name := range []string{path, path + ".1"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatal(info.Mode(), err)
		}
		size += info.Size()
	}
	if size > cfg.MaxBytes+2<<10 { // and a line in each
		t.Errorf("the files have %d bytes, want at most %d", size, cfg.MaxBytes)
	}
}

// TestAddNeverWaits: while nothing can be written, Add returns; what has no room is dropped.
func TestAddNeverWaits(t *testing.T) {
	for _, blocks := range []int{1, 20_000} { // too many entries, too many bytes
		cfg := config(filepath.Join(t.TempDir(), "d"))
		goOn, describe := make(chan struct{}), cfg.Describe
		cfg.Describe = func(w kv.Rank) decisions.Worker { <-goOn; return describe(w) }
		r, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all := 2 * maxQueued
		if blocks > 1 {
			all = 2 * maxQueuedBytes / 8 / blocks
		}
		for i := range all {
			r.Add(entry(i, blocks))
		}
		if _, dropped := r.Counts(); dropped == 0 || dropped >= uint64(all) {
			t.Errorf("%d of %d are dropped", dropped, all)
		}
		close(goOn)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if written, dropped := r.Counts(); written == 0 || written+dropped != uint64(all) || r.bytes.Load() != 0 {
			t.Errorf("%d are written, %d dropped of %d; %d bytes are queued", written, dropped, all, r.bytes.Load())
		}
		r.Add(entry(0, 1)) // late: it stays in the queue
	}
}

// TestFullDisk: after a write that fails, decisions are dropped, and Close has the reason.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	r, err := Open(config("/dev/full"))
	if err != nil {
		t.Fatal(err)
	}
	const all = 500
	for i := range all {
		r.Add(entry(i, 20))
	}
	if err := r.Close(); err == nil {
		t.Error("Close has no error")
	}
	if _, dropped := r.Counts(); dropped == 0 {
		t.Error("nothing is dropped")
	}
}
