package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Lock is lock.json.
type Lock struct {
	Compiler string
	Flags    []string
	Sources  map[string]string           // file -> SHA-256
	PTX      map[string]string           // file -> SHA-256
	Usage    map[string]map[string]Usage // kernel -> target -> what it takes
}

func main() {
	tree := flag.String("tree", "", "directory of the compiler, outside of the repository")
	kernels := flag.String("kernels", filepath.Join("..", "..", "engine", "cuda", "kernels"), "directory of the kernels")
	requirements := flag.String("requirements", "requirements.txt", "the packages and their hashes")
	flag.Parse()
	if *tree == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	root, err := filepath.Abs(*tree)
	if err == nil {
		err = do(compiler{root}, *kernels, *requirements, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cuda:", err)
		if errors.Is(err, errUnreachable) {
			os.Exit(75) // EX_TEMPFAIL: not a fault of the kernels
		}
		os.Exit(1)
	}
}

func do(c compiler, dir, requirements string, args []string) error {
	switch {
	case args[0] == "install" && len(args) == 1:
		return install(c.root, requirements)
	case args[0] == "build" && len(args) == 1:
		ptx, lock, err := build(c, dir)
		if err != nil {
			return err
		}
		return write(dir, ptx, lock)
	case args[0] == "check" && len(args) == 1:
		return check(c, dir)
	case args[0] == "cubin" && len(args) == 2:
		return cubins(c, dir, args[1])
	}
	return fmt.Errorf("no such command: %s", strings.Join(args, " "))
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// build compiles all sources, in memory.
func build(c compiler, dir string) (ptx map[string][]byte, lock *Lock, err error) {
	lock = &Lock{Flags: flags, Sources: map[string]string{}, PTX: map[string]string{}, Usage: map[string]map[string]Usage{}}
	if lock.Compiler, err = c.version(); err != nil {
		return nil, nil, err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.cu*"))
	if err != nil || len(sources) == 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("no kernels in %s", dir))
	}
	ptx = map[string][]byte{}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		name := filepath.Base(path)
		lock.Sources[name] = hash(text)
		stem, isSource := strings.CutSuffix(name, ".cu")
		if !isSource {
			continue
		}
		made, err := c.compile(dir, name)
		if err != nil {
			return nil, nil, err
		}
		ptx[stem+".ptx"] = made
		lock.PTX[stem+".ptx"] = hash(made)
		if err := measure(c, made, lock.Usage); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return ptx, lock, nil
}

// measure asks ptxas for all targets.
func measure(c compiler, ptx []byte, usage map[string]map[string]Usage) error {
	temp, err := os.MkdirTemp("", "cuda")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	in := filepath.Join(temp, "in.ptx")
	if err := os.WriteFile(in, ptx, 0o600); err != nil {
		return err
	}
	for _, target := range targets {
		said, err := c.assemble(in, target, filepath.Join(temp, "out.cubin"))
		if err != nil {
			return err
		}
		for kernel, u := range said {
			if usage[kernel] == nil {
				usage[kernel] = map[string]Usage{}
			}
			usage[kernel][target] = u
			if u.SpillBytes > 0 {
				return fmt.Errorf("%s spills %d bytes of registers on %s", kernel, u.SpillBytes, target)
			}
		}
	}
	return nil
}

func encode(lock *Lock) ([]byte, error) {
	text, err := json.MarshalIndent(lock, "", "\t")
	return append(text, '\n'), err
}

func write(dir string, ptx map[string][]byte, lock *Lock) error {
	for name, text := range ptx {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	text, err := encode(lock)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "lock.json"), text, 0o644)
}

// check compiles again and names each file that differs.
func check(c compiler, dir string) error {
	ptx, lock, err := build(c, dir)
	if err != nil {
		return err
	}
	want, err := encode(lock)
	if err != nil {
		return err
	}
	ptx["lock.json"] = want
	there, err := filepath.Glob(filepath.Join(dir, "*.ptx"))
	if err != nil {
		return err
	}
	var wrong []error
	for name, text := range ptx {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, text) {
			wrong = append(wrong, fmt.Errorf("%s is not what the compiler makes of the sources: build again", name))
		}
	}
	for _, path := range there {
		if ptx[filepath.Base(path)] == nil {
			wrong = append(wrong, fmt.Errorf("%s has no source", path))
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(wrong...)
}

// cubins assembles the PTX that is checked in for sm_90a.
func cubins(c compiler, dir, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.ptx"))
	if err != nil {
		return err
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".ptx") + ".sm_90a.cubin"
		if _, err := c.assemble(path, "sm_90a", filepath.Join(out, name)); err != nil {
			return err
		}
	}
	return nil
}
