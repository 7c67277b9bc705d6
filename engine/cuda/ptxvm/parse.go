package ptxvm

import (
	"fmt"
	"strconv"
	"strings"
)

// Module is one decoded file of PTX.
type Module struct {
	Name    string
	kernels map[string]*Kernel
}

// Kernel returns the kernel of that name, nil if there is none.
func (m *Module) Kernel(name string) *Kernel { return m.kernels[name] }

// Kernel is one entry of a module.
type Kernel struct {
	Name        string
	ParamBytes  int
	MaxThreads  int // per block, from .maxntid
	SharedBytes int // static

	params  map[string]int // name -> offset
	shared  map[string]int // name -> offset; dynamic memory begins at SharedBytes
	code    []instr
	files   map[int]string
	consts  []constant
	special []specialRegister
	regs    int
	preds   int
}

type constant struct {
	reg   int32
	value uint64
}

type specialRegister struct {
	reg   int32
	value func(w *warp, at Dim, lane int) uint64
}

// parser reads a module line by line: the compiler writes one statement per line.
type parser struct {
	module *Module
	files  map[int]string
	outer  map[string][]string // declarations of shared memory outside of kernels; nil: dynamic
	kernel *decoder            // nil outside of kernels
	number int                 // line number
}

// Parse decodes PTX. It returns an error that names the first instruction, directive or operand that
// this package does not support.
func Parse(name string, text []byte) (*Module, error) {
	p := &parser{module: &Module{name, map[string]*Kernel{}}, files: map[int]string{}, outer: map[string][]string{}}
	for line := range strings.Lines(string(text)) {
		p.number++
		if at := strings.Index(line, "//"); at >= 0 {
			line = line[:at]
		}
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("ptxvm: %s:%d: %w", name, p.number, err)
		}
	}
	if p.kernel != nil {
		return nil, fmt.Errorf("ptxvm: %s: kernel %s does not end", name, p.kernel.k.Name)
	}
	for _, k := range p.module.kernels {
		k.files = p.files
	}
	return p.module, nil
}

func (p *parser) line(line string) error {
	if p.kernel == nil {
		return p.outside(line)
	}
	d := p.kernel
	switch {
	case line == "{" || line == "(" || line == ")":
		return nil
	case line == "}":
		p.kernel = nil
		p.module.kernels[d.k.Name] = d.k
		return d.finish()
	case strings.HasSuffix(line, ":"):
		d.labels[strings.TrimSuffix(line, ":")] = len(d.k.code)
		return nil
	case strings.HasPrefix(line, "."):
		return p.directive(d, line)
	}
	text, ok := strings.CutSuffix(line, ";")
	if !ok {
		return fmt.Errorf("a statement that does not end on its line: %s", line)
	}
	return d.statement(strings.TrimSpace(text))
}

func (p *parser) outside(line string) error {
	fields := strings.Fields(line)
	switch fields[0] {
	case ".version", ".target", ".address_size":
		return nil
	case ".file":
		n, err := strconv.Atoi(fields[1])
		p.files[n] = strings.Trim(fields[2], `"`)
		return err
	case ".visible":
		if len(fields) > 2 && fields[1] == ".entry" {
			p.kernel = newDecoder(strings.TrimSuffix(fields[2], "("), p.outer)
			return nil
		}
	case ".extern":
		if name, ok := strings.CutSuffix(fields[len(fields)-1], "[];"); ok && fields[1] == ".shared" {
			p.outer[name] = nil
			return nil
		}
	case ".shared":
		name, _, err := array(strings.TrimSuffix(fields[len(fields)-1], ";"))
		p.outer[name] = strings.Fields(strings.TrimSuffix(line, ";"))[1:]
		return err
	}
	return fmt.Errorf("unknown directive: %s", line)
}

// directive reads a directive inside of a kernel.
func (p *parser) directive(d *decoder, line string) error {
	fields := strings.Fields(strings.TrimRight(line, ",;"))
	switch fields[0] {
	case ".loc":
		file, err1 := strconv.Atoi(fields[1])
		n, err2 := strconv.Atoi(fields[2])
		if err1 != nil || err2 != nil {
			return fmt.Errorf("bad .loc: %s", line)
		}
		d.file, d.line = file, n
		return nil
	case ".maxntid":
		n := 1
		for _, f := range fields[1:] {
			x, err := strconv.Atoi(strings.TrimRight(f, ","))
			if err != nil {
				return fmt.Errorf("bad .maxntid: %s", line)
			}
			n *= x
		}
		d.k.MaxThreads = n
		return nil
	case ".param":
		return d.param(fields[1], fields[len(fields)-1])
	case ".reg":
		return d.declare(fields[1], fields[2])
	case ".shared":
		return d.sharedVariable(fields[1:])
	case ".minnctapersm", ".pragma":
		return nil // hints for ptxas
	}
	return fmt.Errorf("unknown directive: %s", line)
}

// sizes has the sizes of types in bytes; predicates have none.
var sizes = map[string]int{"b8": 1, "u8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}

// array splits name[n]. Without brackets n is 1.
func array(s string) (name string, n int, err error) {
	name, rest, ok := strings.Cut(s, "[")
	if !ok {
		return name, 1, nil
	}
	n, err = strconv.Atoi(strings.TrimSuffix(rest, "]"))
	return name, n, err
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
