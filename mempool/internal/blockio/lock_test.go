package blockio

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestTryLock: one of two open files has the lock, and the other one gets it when the first is closed.
func TestTryLock(t *testing.T) {
	if runtime.GOOS == "plan9" || runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("this system has no file locks")
	}
	path := filepath.Join(t.TempDir(), "lock")
	var files [2]*os.File
	for i := range files {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, FileMode)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	for i, want := range []bool{true, false} {
		if ok, err := TryLock(files[i]); ok != want || err != nil {
			t.Errorf("file %d gets the lock: %v, want %v, %v", i, ok, want, err)
		}
	}
	files[0].Close()
	if ok, err := TryLock(files[1]); !ok || err != nil {
		t.Errorf("after the first is closed: %v, %v", ok, err)
	}
}
