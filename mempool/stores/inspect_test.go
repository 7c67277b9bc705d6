package stores

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/coppice-llm/coppice/mempool"
	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/storetest"
)

// TestRecordsOfOddPath lists records in directories whose names have the special characters of patterns.
func TestRecordsOfOddPath(t *testing.T) {
	odd := "kv [a-z]*?"
	if runtime.GOOS == "windows" {
		odd = "kv [a-z]" // names can't have the others there
	}
	for kind, name := range map[string]string{disk: "slots-0000", Shared: "0f/0f.kvx"} {
		root, id := filepath.Join(t.TempDir(), odd), storetest.Identity()
		path, _, err := blockio.Place(root, kind, &id, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte("no record"), 0o666)); err != nil {
			t.Fatal(err)
		}
		dirs, err := Find(root, nil)
		if err != nil || len(dirs) != 1 {
			t.Fatalf("%s: Find returns %v, %v", kind, dirs, err)
		}
		n := 0
		for r := range dirs[0].Records(false) {
			if n++; r.Path != file || !errors.Is(r.Err, mempool.ErrCorrupt) {
				t.Errorf("%s: a record of %s with error %v, want the damaged one of %s", kind, r.Path, r.Err, file)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d records, want 1", kind, n)
		}
	}
}
