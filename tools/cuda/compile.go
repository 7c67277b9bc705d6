package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// flags are the flags of nvcc. With -fmad=false, only explicit fused multiply-adds are fused.
var flags = []string{"-std=c++17", "-arch=compute_80", "-O3", "-fmad=false", "-lineinfo", "-ptx"}

// targets lists the GPU architectures for which ptxas must accept the PTX.
var targets = []string{"sm_80", "sm_90a", "sm_100a"}

// The architecture of the machine code, and the suffix of its files, which are compressed.
const (
	cubinTarget = "sm_90a"
	cubinSuffix = "." + cubinTarget + ".cubin.gz"
)

// compiler is the compiler in a tree made by install.
type compiler struct {
	root    string
	machine bool   // make machine code in addition to PTX
	temp    string // directory of intermediate files
}

func (c compiler) command(name string, args ...string) *exec.Cmd {
	bin := filepath.Join(c.root, "nvidia", "cu13", "bin")
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

func run(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}
	return out, nil
}

// version returns the line of nvcc --version that names the build.
func (c compiler) version() (string, error) {
	out, err := run(c.command("nvcc", "--version"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Cuda compilation tools") {
			return strings.TrimSpace(line), nil
		}
	}
	return "", fmt.Errorf("nvcc --version names no version:\n%s", out)
}

// compile returns the PTX of one source in canonical form.
func (c compiler) compile(dir, source string) ([]byte, error) {
	out := filepath.Join(c.temp, "out.ptx")
	cmd := c.command("nvcc", append(flags, "-o", out, source)...)
	cmd.Dir = dir
	if _, err := run(cmd); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	return canonical(text), nil
}

var (
	fileLine = regexp.MustCompile(`^\s*\.file\s+(\d+) "(.*)"`)
	locLine  = regexp.MustCompile(`^\s*\.loc\s+(\d+) (\d+) \d+(?:, function_name \S+, inlined_at (\d+) (\d+) \d+)?`)
)

// canonical returns PTX that does not depend on the place of compilation: with base names of files,
// without debugging strings, and with line numbers of our sources only. Code of the compiler's headers
// gets the line of its caller.
func canonical(text []byte) []byte {
	ours := map[string]bool{} // our files, by number
	var files []string
	for line := range strings.Lines(string(text)) {
		if m := fileLine.FindStringSubmatch(line); m != nil && !strings.Contains(m[2], "/include/") {
			ours[m[1]] = true
			files = append(files, fmt.Sprintf(".file\t%s \"%s\"\n", m[1], filepath.Base(m[2])))
		}
	}
	var out bytes.Buffer
	last := ""
	for line := range strings.Lines(string(text)) {
		if m := locLine.FindStringSubmatch(line); m != nil {
			file, number := m[1], m[2]
			if !ours[file] {
				file, number = m[3], m[4]
			}
			loc := fmt.Sprintf("\t.loc\t%s %s 0\n", file, number)
			if ours[file] && loc != last {
				out.WriteString(loc)
				last = loc
			}
			continue
		}
		if fileLine.MatchString(line) {
			continue
		}
		if strings.Contains(line, ".section\t") {
			break
		}
		if strings.Contains(line, ".entry") {
			last = "" // the first line of each kernel is written even if it repeats
		}
		if strings.TrimSpace(line) != "" {
			out.WriteString(line)
		}
	}
	for _, f := range files {
		out.WriteString(f)
	}
	return out.Bytes()
}

// cubin returns the machine code of PTX, without line numbers, which would be most of its size.
func (c compiler) cubin(ptx []byte) ([]byte, error) {
	var plain bytes.Buffer
	for line := range bytes.Lines(ptx) {
		if word := bytes.TrimSpace(line); !bytes.HasPrefix(word, []byte(".loc")) && !bytes.HasPrefix(word, []byte(".file")) {
			plain.Write(line)
		}
	}
	in, out := filepath.Join(c.temp, "plain.ptx"), filepath.Join(c.temp, "out.cubin")
	if err := os.WriteFile(in, plain.Bytes(), 0o600); err != nil {
		return nil, err
	}
	if _, err := c.assemble(in, cubinTarget, out); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

func pack(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // can't fail: the level is valid
	_, _ = w.Write(data)                                  // can't fail: it writes to memory
	_ = w.Close()
	return b.Bytes()
}

func unpacked(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Usage holds the resources of a kernel on one architecture.
type Usage struct {
	Registers, SpillBytes, SharedBytes int
}

var (
	entryLine = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spillLine = regexp.MustCompile(`(\d+) bytes spill stores`)
	usedLine  = regexp.MustCompile(`Used (\d+) registers`)
	smemLine  = regexp.MustCompile(`(\d+) bytes smem`)
)

// assemble runs ptxas and parses its report of each kernel's resources.
func (c compiler) assemble(ptx, target, out string) (map[string]Usage, error) {
	said, err := run(c.command("ptxas", "-v", "-arch="+target, "-o", out, ptx))
	if err != nil {
		return nil, err
	}
	number := func(m [][]byte) int {
		if m == nil {
			return 0
		}
		n, _ := strconv.Atoi(string(m[1])) // can't fail: the expression matched digits
		return n
	}
	usage := map[string]Usage{}
	kernel, spill := "", 0
	for line := range bytes.Lines(said) {
		if m := entryLine.FindSubmatch(line); m != nil {
			kernel = string(m[1])
		} else if m := spillLine.FindSubmatch(line); m != nil {
			spill = number(m)
		} else if m := usedLine.FindSubmatch(line); m != nil {
			usage[kernel] = Usage{number(m), spill, number(smemLine.FindSubmatch(line))}
		}
	}
	return usage, nil
}
