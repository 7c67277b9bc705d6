package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/mmcloughlin/avo/build"
)

func main() {
	name := flag.String("isa", "avx512", "avx2, avxvnni or avx512")
	set := flag.String("set", "engine", "engine (those of engine/cpu) or hashcopy (those of internal/hashcopy)")
	flag.Parse()
	var t *target
	switch *name {
	case "avx2":
		t = &target{name: "AVX2", lanes: 8}
	case "avxvnni":
		t = &target{name: "AVXVNNI", lanes: 8, vnni: true}
	case "avx512":
		t = &target{name: "AVX512", lanes: 16, vnni: true}
	default:
		fmt.Fprintf(os.Stderr, "avo: isa is %q, want avx2, avxvnni or avx512\n", *name)
		os.Exit(2)
	}
	switch *set {
	case "engine":
		if *name == "avxvnni" { // the other kernels are those of AVX2
			t.products()
			break
		}
		t.engine()
	case "hashcopy":
		t.hashCopy()
	default:
		fmt.Fprintf(os.Stderr, "avo: set is %q, want engine or hashcopy\n", *set)
		os.Exit(2)
	}
	build.Generate()
	if *name == "avxvnni" {
		if err := vexFile(flag.Lookup("out").Value.String()); err != nil {
			fmt.Fprintln(os.Stderr, "avo:", err)
			os.Exit(1)
		}
	}
}

// products generates the products with quantised weights.
func (t *target) products() {
	for _, kind := range quantKinds {
		for _, shape := range t.quantTiles() {
			if kind.high == 0 || shape.rows == 1 { // several rows read expanded weights
				t.quant(shape, kind)
			}
		}
	}
}

// engine generates the kernels of engine/cpu.
func (t *target) engine() {
	for _, kind := range []string{"f32", "bf16", "f16"} {
		for _, shape := range t.tiles() {
			t.gemm(shape.rows, shape.vectors, kind)
		}
	}
	t.products()
	t.expand(1)
	t.expand(2)
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
