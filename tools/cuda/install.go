package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// errUnreachable reports that the packages could not be downloaded.
var errUnreachable = errors.New("no packages")

// install downloads the wheels and unpacks them into one tree, unless that was done before.
func install(tree, requirements string) error {
	if done, err := os.ReadFile(filepath.Join(tree, "installed")); err == nil {
		want, err := os.ReadFile(requirements)
		if err == nil && bytes.Equal(done, want) {
			return nil
		}
	}
	wheels := filepath.Join(tree, "wheels")
	pip := exec.Command("python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
		"--require-hashes", "--dest", wheels, "--requirement", requirements)
	said, err := pip.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("pip download: %w\n%s", err, said)
		if !bytes.Contains(said, []byte("HASHES")) {
			err = fmt.Errorf("%w: %w", errUnreachable, err)
		}
		return err
	}
	files, err := filepath.Glob(filepath.Join(wheels, "*.whl"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := unpack(file, tree); err != nil {
			return fmt.Errorf("unpacking %s: %w", file, err)
		}
	}
	if err := os.RemoveAll(wheels); err != nil {
		return err
	}
	text, err := os.ReadFile(requirements)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(tree, "installed"), text, 0o644)
}

// unpack writes the files of a wheel that belong to the compiler.
func unpack(wheel, tree string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		if !strings.HasPrefix(f.Name, "nvidia/") || strings.HasSuffix(f.Name, "/") {
			continue
		}
		if err := unpackFile(f, filepath.Join(tree, filepath.FromSlash(f.Name))); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(f *zip.File, path string) error {
	if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
		return fmt.Errorf("the wheel has a file outside of its tree: %s", f.Name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	from, err := f.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		return err
	}
	return to.Close()
}
