package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCommittedFilesAreCurrent generates into a temporary folder and compares with
// engine/cpu, but for the first line, which names the command.
func TestCommittedFilesAreCurrent(t *testing.T) {
	for _, isa := range []string{"avx2", "avx512"} {
		dir := t.TempDir()
		names := []string{"kernel_" + isa + "_amd64.s", "kernel_" + isa + "_amd64.go"}
		cmd := exec.Command("go", "run", ".", "-isa", isa, "-pkg", "cpu", "-out", filepath.Join(dir, names[0]), "-stubs", filepath.Join(dir, names[1]))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, name := range names {
			_, want := cut(t, filepath.Join(dir, name))
			if _, got := cut(t, filepath.Join("../../engine/cpu", name)); !bytes.Equal(got, want) {
				t.Errorf("engine/cpu/%s is not what the generator writes: run go generate ./engine/cpu", name)
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
