package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// loop is what one pass of a loop of a kernel executes.
type loop struct {
	function, label string
	instructions    int
	loads, bytes    int // from memory, without prefetches
	multiplies      int // multiply-adds of f32, by element
}

var (
	function  = regexp.MustCompile(`^TEXT ·(\w+)\(SB\)`)
	labelLine = regexp.MustCompile(`^(\w+):$`)
	registers = regexp.MustCompile(`\[([^\]]*)\]`)
)

// loops returns the innermost loops of an assembly file of engine/cpu, for arm64 or amd64: each ends in a
// branch to the last label before it.
func loops(path string) (all []loop, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var at loop
	for lines := bufio.NewScanner(bytes.NewReader(file)); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), " ")
		if m := function.FindStringSubmatch(line); m != nil {
			at = loop{function: m[1]}
		} else if m := labelLine.FindStringSubmatch(line); m != nil {
			at = loop{function: at.function, label: m[1]}
		} else if fields := strings.Fields(line); strings.HasPrefix(line, "\t") && len(fields) > 0 && !strings.HasPrefix(fields[0], "//") {
			at.add(fields[0], strings.Join(fields[1:], " "))
			if at.label != "" && fields[len(fields)-1] == at.label {
				all = append(all, at)
			}
		}
	}
	return all, nil
}

// add counts an instruction.
func (l *loop) add(name, operands string) {
	l.instructions++
	if n := loaded(name, operands); n > 0 {
		l.loads++
		l.bytes += n
	}
	switch {
	case name == "VFMLA" || strings.Contains(operands, "// fmla "):
		l.multiplies += 4
	case strings.HasPrefix(name, "VFMADD") && strings.Contains(operands, "Z"):
		l.multiplies += 16
	case strings.HasPrefix(name, "VFMADD"):
		l.multiplies += 8
	}
}

// loaded returns the number of bytes that an instruction loads. Those that are no load of a vector or of
// an f32 count as none: kernels keep pointers and counts in registers.
func loaded(name, operands string) int {
	from, to, _ := strings.Cut(operands, ",")
	switch base, _, _ := strings.Cut(name, "."); base {
	case "VLD1":
		list := registers.FindStringSubmatch(to)
		if list == nil {
			return 0
		}
		return 16 * (strings.Count(list[1], ",") + 1)
	case "VLD1R":
		return 4
	case "VLD4R":
		return 16
	case "FLDPD":
		return 16
	case "FLDPQ":
		return 32
	case "FMOVQ", "FMOVS":
		if !strings.Contains(from, "(") {
			return 0
		}
		return map[string]int{"FMOVQ": 16, "FMOVS": 4}[base]
	}
	ops := strings.Split(operands, ", ")
	if !strings.HasPrefix(name, "V") || !strings.Contains(strings.Join(ops[:len(ops)-1], " "), "(") {
		return 0
	}
	size := 16
	switch {
	case strings.HasPrefix(name, "VBROADCASTSS") || strings.HasSuffix(name, "SS"):
		return 4
	case strings.Contains(operands, "Z"):
		size = 64
	case strings.Contains(operands, "Y"):
		size = 32
	}
	if name == "VCVTPH2PS" || name == "VPMOVZXWD" {
		return size / 2
	}
	return size
}

// executed returns what one call of a function executes: trips has how often each of its loops is passed, by label.
// Code from a branch to one of taken up to that label is left out.
func executed(path, name string, trips map[string]int, taken ...string) (all loop, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return loop{}, err
	}
	all.function = name
	passes, skipTo, inside := []int{1}, "", false
	for lines := bufio.NewScanner(bytes.NewReader(file)); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), " ")
		if m := function.FindStringSubmatch(line); m != nil {
			inside = m[1] == name
			continue
		}
		if m := labelLine.FindStringSubmatch(line); inside && m != nil {
			if m[1] == skipTo {
				skipTo = ""
			}
			if n, ok := trips[m[1]]; ok && skipTo == "" {
				passes = append(passes, n)
			}
			continue
		}
		fields := strings.Fields(line)
		if !inside || skipTo != "" || len(fields) == 0 || strings.HasPrefix(fields[0], "//") {
			continue
		}
		var one loop
		one.add(fields[0], strings.Join(fields[1:], " "))
		n, to := passes[len(passes)-1], fields[len(fields)-1]
		all.instructions, all.loads, all.bytes = all.instructions+n*one.instructions, all.loads+n*one.loads, all.bytes+n*one.bytes
		if fields[0] == "RET" {
			return all, nil
		}
		if _, ok := trips[to]; ok && len(passes) > 1 {
			passes = passes[:len(passes)-1]
		} else if slices.Contains(taken, to) {
			skipTo = to
		}
	}
	return loop{}, fmt.Errorf("%s has no function %s that returns", path, name)
}

// count prints the loops of assembly files.
func count(w io.Writer, paths []string) error {
	for _, path := range paths {
		all, err := loops(path)
		if err != nil {
			return err
		}
		for _, l := range all {
			fmt.Fprintf(w, "%-20s %-24s %4d instructions %4d loads %5d bytes %5d multiply-adds\n", l.function, l.label, l.instructions, l.loads, l.bytes, l.multiplies)
		}
	}
	return nil
}
