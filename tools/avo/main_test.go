package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCommittedFilesAreCurrent generates all files into a temporary directory and compares them with
// the committed ones, except for the first line, which names the command.
func TestCommittedFilesAreCurrent(t *testing.T) {
	for _, set := range []struct {
		name, pkg, dir string
		isas           []string
	}{
		{"engine", "cpu", "engine/cpu", targetNames()},
		{"hashcopy", "hashcopy", "internal/hashcopy", []string{"avx2", "avx512"}},
	} {
		for _, isa := range set.isas {
			dir := t.TempDir()
			names := []string{"kernel_" + isa + "_amd64.s", "kernel_" + isa + "_amd64.go"}
			cmd := exec.Command("go", "run", ".", "-set", set.name, "-isa", isa, "-pkg", set.pkg, "-out", filepath.Join(dir, names[0]), "-stubs", filepath.Join(dir, names[1]))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, name := range names {
				_, want := cut(t, filepath.Join(dir, name))
				if _, got := cut(t, filepath.Join("../..", set.dir, name)); !bytes.Equal(got, want) {
					t.Errorf("%s/%s is not what the generator writes: run go generate ./%s", set.dir, name, set.dir)
				}
			}
		}
	}
}

func cut(t *testing.T, path string) (first, rest []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ = bytes.Cut(data, []byte("\n"))
	return first, rest
}
