package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "avo:", err)
		os.Exit(1)
	}
}

// run generates the files that args ask for. It writes them last: an error leaves the files as
// they are.
func run(args []string) error {
	flags := flag.NewFlagSet("avo", flag.ExitOnError)
	name := flags.String("isa", "avx512", strings.Join(targetNames(), ", "))
	set := flags.String("set", "engine", "engine (kernels of engine/cpu) or hashcopy (those of internal/hashcopy)")
	pkg := flags.String("pkg", "cpu", "name of the package")
	out := flags.String("out", "", "assembly file to write")
	stubs := flags.String("stubs", "", "Go file of stubs to write")
	flags.Parse(args)
	if *out == "" || *stubs == "" || flags.NArg() > 0 {
		return fmt.Errorf("give the files to write, -out FILE.s and -stubs FILE.go, and no other arguments")
	}
	t := newTarget(*name)
	if t == nil {
		return fmt.Errorf("isa is %q, want one of %s", *name, strings.Join(targetNames(), ", "))
	}
	switch {
	case *set == "engine" && t.vnni: // the other kernels are those of the level without VNNI
		t.products()
	case *set == "engine":
		t.engine()
	case *set == "hashcopy":
		t.hashCopy()
	default:
		return fmt.Errorf("set is %q, want engine or hashcopy", *set)
	}
	file := t.compiled()
	if err := t.check(file); err != nil {
		return fmt.Errorf("nothing is written: %w", err)
	}
	cfg := printer.NewGoRunConfig()
	cfg.Pkg = *pkg
	assembly, err := printer.NewGoAsm(cfg).Print(file)
	if err != nil {
		return err
	}
	if t.vexDot {
		if assembly, err = vexDots(assembly); err != nil {
			return err
		}
	}
	declarations, err := printer.NewStubs(cfg).Print(file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out, assembly, 0o644); err != nil {
		return err
	}
	return os.WriteFile(*stubs, declarations, 0o644)
}

// compiled returns the recorded kernels with their registers allocated. The recording belongs to
// package build, which only hands it to the passes of Generate; Generate ends the process on an
// error.
func (t *target) compiled() *ir.File {
	var file *ir.File
	keep := func(f *ir.File) error { file = f; return nil }
	pass.Compile = pass.Concat(pass.InstructionPass(t.nameVEX), pass.Compile, pass.Func(keep))
	flag.CommandLine.Parse([]string{"-out", os.DevNull}) // build's own output, which nothing checks
	build.Generate()
	return file
}

// targets lists the targets, one for each level of internal/isa. Each has the features that the
// level promises, under avo's names, and those of every amd64 processor.
var targets = []target{
	{name: "AVX2", lanes: 8, features: avx2},
	{name: "AVXVNNI", lanes: 8, vnni: true, vexDot: true, features: append(slices.Clone(avx2), "AVXVNNI")},
	{name: "AVX512", lanes: 16, features: avx512},
	{name: "AVX512VNNI", lanes: 16, vnni: true, features: append(slices.Clone(avx512), "AVX512VNNI")},
}

// newTarget returns the target of a level, nil if there is none.
func newTarget(level string) *target {
	for _, t := range targets {
		if strings.ToLower(t.name) == level {
			return &t
		}
	}
	return nil
}

func targetNames() []string {
	var names []string
	for _, t := range targets {
		names = append(names, strings.ToLower(t.name))
	}
	return names
}

// products generates the products with quantised weights.
func (t *target) products() {
	for _, kind := range quantKinds {
		t.quant(kind)
	}
}

// engine generates the kernels of engine/cpu.
func (t *target) engine() {
	for _, kind := range []string{"f32", "bf16", "f16"} {
		for _, shape := range t.tiles() {
			t.gemm(shape.rows, shape.vectors, kind)
		}
	}
	if !t.wide() { // the AVX-512 path without VNNI uses the products of AVX2
		t.products()
	}
	t.scores()
	t.softmax()
	t.values()
	t.squares()
	t.scale()
	t.silu()
	t.siluPairs()
	if !t.wide() { // the AVX-512 path uses the AVX2 kernel
		t.add()
		t.rotate()
		t.quantize()
		t.fetch()
		t.narrowF16()
	}
	t.stream()
	t.widenF16()
	t.widenBF16()
	t.widenQ8()
}
