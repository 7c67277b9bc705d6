package lint

import (
	"flag"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var counts = flag.Bool("counts", false, "print the size of the house: TestCounts")

// maxColumns is the width of a line in counts. A longer line counts as several.
const maxColumns = 140

// codeLines counts the lines of a file that have code: more than blanks and comments.
func codeLines(t *testing.T, s *source) (n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", s.path))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	file := set.AddFile(s.path, -1, len(text))
	var scan scanner.Scanner
	scan.Init(file, text, nil, 0)
	code := map[int]bool{}
	for {
		pos, tok, lit := scan.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range 1 + strings.Count(lit, "\n") {
			code[first+i] = true
		}
	}
	for i, line := range strings.Split(string(text), "\n") {
		if code[i+1] {
			n += 1 + max(0, len(line)-1)/maxColumns
		}
	}
	return n
}

// room returns the top-level folder of a package, "." for the root.
func room(pkg string) string {
	top, _, _ := strings.Cut(pkg, "/")
	return top
}

// TestCounts prints the lines of code of each room, without blanks, comments, tests and generated files.
func TestCounts(t *testing.T) {
	if !*counts {
		t.Skip("run it with -args -counts")
	}
	product, tests := map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		switch {
		case s.test:
			tests[room(s.pkg)] += codeLines(t, &s)
		case !ast.IsGenerated(s.file):
			product[room(s.pkg)] += codeLines(t, &s)
		}
	}
	all, allTests := 0, 0
	for _, name := range sorted(tests) {
		all, allTests = all+product[name], allTests+tests[name]
		fmt.Printf("%-12s %6d lines, %6d of tests\n", name, product[name], tests[name])
	}
	fmt.Printf("%-12s %6d lines, %6d of tests\n", "all", all, allTests)
	for _, pkgs := range [][]string{{"."}, {".", "./local"}, {"./cmd/coppice"}} {
		ours, third := drawn(t, pkgs...)
		fmt.Printf("a program that imports %v links %d lines of %d packages, and %d third-party packages\n", pkgs, linesOf(t, ours), len(ours), len(third))
	}
}

// linesOf counts the lines of code of packages, without tests and generated files.
func linesOf(t *testing.T, pkgs []string) (n int) {
	t.Helper()
	for _, s := range sources(t) {
		if !s.test && !ast.IsGenerated(s.file) && slices.Contains(pkgs, s.pkg) {
			n += codeLines(t, &s)
		}
	}
	return n
}

// drawn lists the packages of the module, and those of others, that a program links which imports pkgs.
func drawn(t *testing.T, pkgs ...string) (ours, third []string) {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-deps"}, pkgs...)...)
	list.Dir = filepath.Join("..", "..")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		first, _, _ := strings.Cut(pkg, "/")
		switch {
		case within(pkg) != "":
			ours = append(ours, within(pkg))
		case strings.Contains(first, "."):
			third = append(third, pkg)
		}
	}
	return ours, third
}

// maxFloors is the largest number of floors of the house.
const maxFloors = 12

// TestRooms checks that imports between rooms, the top-level folders, make no circle, and that the floors are those that
// ARCHITECTURE.md shows: a room stands one floor above the highest room that it imports.
func TestRooms(t *testing.T) {
	imported := map[string]map[string]bool{}
	for _, s := range sources(t) {
		from := room(s.pkg)
		if imported[from] == nil {
			imported[from] = map[string]bool{}
		}
		for _, path := range imports(&s) {
			if rel := within(path); !s.test && rel != "" && room(rel) != from {
				imported[from][room(rel)] = true
			}
		}
	}
	arrows, up := 0, []string{}
	for _, from := range sorted(imported) {
		arrows += len(imported[from])
		for _, to := range sorted(imported[from]) {
			if reaches(imported, to, from, map[string]bool{}) {
				up = append(up, from+" → "+to)
			}
		}
	}
	if len(up) > 0 {
		t.Errorf("%d of %d imports between rooms are in circles: %v", len(up), arrows, up)
		return
	}
	floors := map[string]int{}
	for _, name := range sorted(imported) {
		floor(imported, name, floors)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= len(floors); at++ {
		var here []string
		for _, name := range sorted(floors) {
			if floors[name] == at {
				here = append(here, name)
			}
		}
		if at > maxFloors && len(here) > 0 {
			t.Errorf("floor %d: %v; at most %d floors can be kept in mind", at, here, maxFloors)
		}
		if len(here) > 0 {
			if line := fmt.Sprintf("\n%2d  %s\n", at, strings.Join(here, "  ")); !strings.Contains(string(text), line) {
				t.Errorf("ARCHITECTURE.md lacks the floor %q", line)
			}
		}
	}
	t.Logf("%d imports between %d rooms, none in a circle", arrows, len(floors))
}

// reaches reports whether room from imports to, itself or through others.
func reaches(imported map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for next := range imported[from] {
		if reaches(imported, next, to, seen) {
			return true
		}
	}
	return false
}

// floor returns the floor of a room and keeps it in floors.
func floor(imported map[string]map[string]bool, name string, floors map[string]int) int {
	if floors[name] == 0 {
		highest := 0
		for below := range imported[name] {
			highest = max(highest, floor(imported, below, floors))
		}
		floors[name] = highest + 1
	}
	return floors[name]
}

// sorted returns the keys of m in order.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
