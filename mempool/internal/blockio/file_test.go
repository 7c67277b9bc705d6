package blockio

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/mempool"
)

// TestRegularOnly checks that what is no regular file is neither opened nor read, and that the attempt
// neither waits nor takes memory, and that a file larger than its reader expects is refused as cheaply.
func TestRegularOnly(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	large := at("large")
	err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 700<<20), os.Symlink("/dev/zero", at("zero")), os.WriteFile(at("small"), []byte("abc"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	odd := []string{dir, at("zero")}
	if makePipe(at("pipe")) {
		odd = append(odd, at("pipe"))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, path := range odd {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
			f, err := Open(path, flag, nil)
			if err == nil {
				f.Close()
			}
			if flag == os.O_RDONLY && !errors.Is(err, ErrNotRegular) || err == nil {
				t.Errorf("%s is opened with %x: %v", path, flag, err)
			}
		}
		if _, err := ReadSmall(path, 10, nil); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s is read: %v", path, err)
		}
	}
	for limit, want := range map[int]bool{2: false, 3: true, 4: true} {
		if b, err := ReadSmall(at("small"), limit, nil); (err == nil && string(b) == "abc") != want {
			t.Errorf("3 bytes are read with the limit %d: %q, %v", limit, b, err)
		}
	}
	if _, err := ReadSmall(large, 100, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("700 MiB are read as a small file: %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes are allocated", n)
	}
}

// TestCardBounded checks that an identity file without an end is replaced instead of read.
func TestCardBounded(t *testing.T) {
	id := mempool.Identity{ModelID: "m", NumericsID: "n", KVType: kv.F32, PageLayout: mempool.PageLayout,
		Layout: mempool.Layout{PageTokens: 4, PageBytes: 1024, ExtentPages: 4}}
	dir := t.TempDir()
	path := filepath.Join(dir, id.Fingerprint().String())
	if err := errors.Join(os.Mkdir(path, 0o700), os.Symlink("/dev/zero", filepath.Join(path, IdentityFile))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Place(dir, Shared, &id, nil, nil); err != nil {
		t.Fatal(err)
	}
	if card, err := ReadCard(path); err != nil || card.Identity != id {
		t.Errorf("the identity file is %+v, %v", card, err)
	}
}
