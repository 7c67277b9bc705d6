//go:build linux

// Command source writes the C source of a libcuda without a device: stubs that call back
// into the program that links them (package stub). With -header it has every function
// that cuda.h declares, so that a program for the toolkit's library links with this one
// too. Only CI runs it.
//
//	go run ./engine/cuda/cudrv/internal/stub/source -header cuda.h >stub.c
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv/internal/stub"
)

var declared = regexp.MustCompile(`\bcu[A-Z]\w*`)

func main() {
	header := flag.String("header", "", "cuda.h, of which every function gets a stub")
	flag.Parse()
	var names []string
	if *header != "" {
		text, err := os.ReadFile(*header)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		// Names of functions, and the names that macros give them. An additional type does no harm.
		names = declared.FindAllString(string(text), -1)
	}
	fmt.Print(stub.Source(names))
}
