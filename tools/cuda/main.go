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

// Lock is the content of lock.json.
type Lock struct {
	Compiler string
	Flags    []string
	Sources  map[string]string           // file -> SHA-256
	PTX      map[string]string           // file -> SHA-256
	Cubins   map[string]string           `json:",omitempty"` // file -> SHA-256 of its decompressed content
	Usage    map[string]map[string]Usage // kernel -> target -> resources
}

func main() {
	tree := flag.String("tree", "", "directory of the compiler, outside of the repository")
	kernels := flag.String("kernels", filepath.Join("..", "..", "engine", "cuda", "kernels"), "directory of the kernels")
	requirements := flag.String("requirements", "requirements.txt", "the packages and their hashes")
	machine := flag.Bool("cubins", true, "also machine code for "+cubinTarget)
	flag.Parse()
	if flag.Arg(0) == "carry" && flag.NArg() == 2 {
		if err := carry(flag.Arg(1)); err != nil {
			fmt.Fprintln(os.Stderr, "cuda:", err)
			os.Exit(1)
		}
		return
	}
	if *tree == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	root, err := filepath.Abs(*tree)
	if err == nil {
		err = do(compiler{root: root, machine: *machine}, *kernels, *requirements, flag.Args())
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
		made, lock, err := build(c, dir)
		if err != nil {
			return err
		}
		return write(dir, made, lock)
	case args[0] == "check" && len(args) == 1:
		return check(c, dir)
	}
	return fmt.Errorf("no such command: %s", strings.Join(args, " "))
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// build compiles all sources and returns the files in memory: PTX, and machine code before compression.
func build(c compiler, dir string) (files map[string][]byte, lock *Lock, err error) {
	lock = &Lock{Flags: flags, Sources: map[string]string{}, PTX: map[string]string{}, Cubins: map[string]string{}, Usage: map[string]map[string]Usage{}}
	if lock.Compiler, err = c.version(); err != nil {
		return nil, nil, err
	}
	if c.temp, err = os.MkdirTemp("", "cuda"); err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(c.temp)
	sources, err := filepath.Glob(filepath.Join(dir, "*.cu"))
	headers, _ := filepath.Glob(filepath.Join(dir, "*.cuh")) // can't fail: the pattern is valid
	if sources = append(sources, headers...); err != nil || len(sources) == 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("no kernels in %s", dir))
	}
	files = map[string][]byte{}
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
		files[stem+".ptx"] = made
		lock.PTX[stem+".ptx"] = hash(made)
		if err := measure(c, made, lock.Usage); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		if c.machine {
			code, err := c.cubin(made)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			files[stem+cubinSuffix] = code
			lock.Cubins[stem+cubinSuffix] = hash(code)
		}
	}
	return files, lock, nil
}

// measure runs ptxas for all targets and records the resources of each kernel.
func measure(c compiler, ptx []byte, usage map[string]map[string]Usage) error {
	in := filepath.Join(c.temp, "in.ptx")
	if err := os.WriteFile(in, ptx, 0o600); err != nil {
		return err
	}
	for _, target := range targets {
		said, err := c.assemble(in, target, filepath.Join(c.temp, "out.cubin"))
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

func write(dir string, files map[string][]byte, lock *Lock) error {
	for name, data := range files {
		if strings.HasSuffix(name, cubinSuffix) {
			data = pack(data)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	text, err := encode(lock)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "lock.json"), text, 0o644)
}

// check compiles again and reports each file that differs.
func check(c compiler, dir string) error {
	files, lock, err := build(c, dir)
	if err != nil {
		return err
	}
	if files["lock.json"], err = encode(lock); err != nil {
		return err
	}
	var wrong []error
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && strings.HasSuffix(name, cubinSuffix) {
			got, err = unpacked(got)
		}
		if err != nil || !bytes.Equal(got, want) {
			wrong = append(wrong, fmt.Errorf("%s is not what the compiler makes of the sources: build again", name))
		}
	}
	for _, pattern := range []string{"*.ptx", "*" + cubinSuffix} {
		there, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range there {
			if files[filepath.Base(path)] == nil {
				wrong = append(wrong, fmt.Errorf("%s has no source", path))
			}
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(wrong...)
}
