package lint

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestAssemblyIsDecoded fails for a package with assembly that no test of the package passes to
// isatest.Check: its machine code would be checked against no level.
func TestAssemblyIsDecoded(t *testing.T) {
	checked := map[string]bool{}
	for _, s := range sources(t) {
		if s.test && callsCheck(s.file) {
			checked[s.pkg] = true
		}
	}
	packages := assembled(everyFile(t))
	if len(packages) < 2 {
		t.Fatalf("packages with assembly: %v", packages)
	}
	for _, pkg := range packages {
		if !checked[pkg] {
			t.Errorf(`%s has assembly, but no test of it calls isatest.Check(t, "%s/%s")`, pkg, module, pkg)
		}
	}
}

// assembled returns the packages that have assembly for amd64: files that name no other architecture.
func assembled(files []string) []string {
	packages := map[string]bool{}
	for _, file := range files {
		name, ok := strings.CutSuffix(path.Base(file), ".s")
		other := slices.ContainsFunc([]string{"386", "arm", "arm64", "loong64", "ppc64le", "riscv64", "s390x", "wasm"}, func(arch string) bool {
			return strings.HasSuffix(name, "_"+arch)
		})
		if ok && !other && !slices.Contains(strings.Split(file, "/"), "testdata") {
			packages[path.Dir(file)] = true
		}
	}
	return slices.Sorted(maps.Keys(packages))
}

// callsCheck reports whether a file calls isatest.Check.
func callsCheck(file *ast.File) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Check" {
				pkg, ok := s.X.(*ast.Ident)
				found = found || ok && pkg.Name == "isatest"
			}
		}
		return !found
	})
	return found
}

func TestPackagesWithAssembly(t *testing.T) {
	got := assembled([]string{"a/k_amd64.s", "a/l_amd64.s", "b/k.s", "c/k_arm64.s", "d/k.go", "e/testdata/k.s", "f/k_linux_amd64.s"})
	if want := []string{"a", "b", "f"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
