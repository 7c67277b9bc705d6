package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed gpucheck.sh
var script []byte

// carry writes a program and a script to dir that check a GPU on a machine without Go and without a
// C compiler: coppice, static but for the loader of libcuda, and gpucheck.sh, which runs it.
func carry(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-tags", "purego", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "coppice"), "./cmd/coppice")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOWORK=off")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	return os.WriteFile(filepath.Join(dir, "gpucheck.sh"), script, 0o755)
}
