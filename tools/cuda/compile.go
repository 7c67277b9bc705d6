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

// flags of nvcc. -fmad=false: a fused multiply-add is only where the source says so.
var flags = []string{"-std=c++17", "-arch=compute_80", "-O3", "-fmad=false", "-lineinfo", "-ptx"}

// targets are the machines that ptxas must accept the PTX for.
var targets = []string{"sm_80", "sm_90a", "sm_100a"}

// Machine code is made for one machine and packed into files of that suffix.
const (
	cubinTarget = "sm_90a"
	cubinSuffix = "." + cubinTarget + ".cubin.gz"
)

// compiler is a tree made by install.
type compiler struct {
	root    string
	machine bool // make machine code too
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

// version is the line of nvcc --version with its build.
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

// compile is the PTX of one source, as canonical writes it.
func (c compiler) compile(dir, source string) ([]byte, error) {
	temp, err := os.MkdirTemp("", "cuda")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	out := filepath.Join(temp, "out.ptx")
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

// canonical makes PTX that does not depend on where it was compiled: files by
// their base names, no debugging strings, and lines of our sources only, where
// code of the compiler's headers counts for the place that it is called from.
func canonical(text []byte) []byte {
	ours := map[string]bool{} // files, by number
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
			last = "" // each kernel says its lines itself
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

// cubin is the machine code of PTX, without the lines of the sources, which would be most
// of it.
func (c compiler) cubin(ptx []byte) ([]byte, error) {
	temp, err := os.MkdirTemp("", "cuda")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	var plain bytes.Buffer
	for line := range bytes.Lines(ptx) {
		if word := bytes.TrimSpace(line); !bytes.HasPrefix(word, []byte(".loc")) && !bytes.HasPrefix(word, []byte(".file")) {
			plain.Write(line)
		}
	}
	in, out := filepath.Join(temp, "in.ptx"), filepath.Join(temp, "out.cubin")
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
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // a level that there is
	_, _ = w.Write(data)                                  // to memory
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

// Usage is what a kernel takes on one machine.
type Usage struct {
	Registers, SpillBytes, SharedBytes int
}

var (
	entryLine = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spillLine = regexp.MustCompile(`(\d+) bytes spill stores`)
	usedLine  = regexp.MustCompile(`Used (\d+) registers`)
	smemLine  = regexp.MustCompile(`(\d+) bytes smem`)
)

// assemble runs ptxas and reads what it says of each kernel.
func (c compiler) assemble(ptx, target, out string) (map[string]Usage, error) {
	said, err := run(c.command("ptxas", "-v", "-arch="+target, "-o", out, ptx))
	if err != nil {
		return nil, err
	}
	number := func(m [][]byte) int {
		if m == nil {
			return 0
		}
		n, _ := strconv.Atoi(string(m[1])) // digits, by the expression
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
