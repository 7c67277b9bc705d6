package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// order bounds, in percent, the uses of functions and methods that stand below their declaration in a file of a package: a reader who
// begins at the top of a file meets a function where it is used, and its text after that.
var order = map[string]int{"actors": 20, "engine/cpu": 20, "engine/cuda": 20, "engine/sim": 20, "events": 20, "gateway": 20, "tokenizer/chat": 20}

// TestOrder counts uses within a file. A method is known by its name alone.
func TestOrder(t *testing.T) {
	below, all := map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		if _, bound := order[s.pkg]; bound && !s.test {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", s.path), nil, 0) // resolves names, as sources does not
			if err != nil {
				t.Fatal(err)
			}
			usesOf(file, func(use, declared token.Pos) {
				all[s.pkg]++
				if use > declared {
					below[s.pkg]++
				}
			})
		}
	}
	for _, pkg := range sorted(order) {
		if all[pkg] == 0 {
			t.Errorf("%s has no uses of its own functions: the list names a package that is gone", pkg)
			continue
		}
		share := 100 * float64(below[pkg]) / float64(all[pkg])
		t.Logf("%-14s %4d of %4d uses, %4.1f %%", pkg, below[pkg], all[pkg], share)
		if share > float64(order[pkg]) {
			t.Errorf("%s: %.1f %% of uses stand below the declaration, at most %d %%: put functions after their first use", pkg, share, order[pkg])
		}
	}
}

// usesOf calls visit for each use of a function or method that the file declares, outside of that function.
func usesOf(file *ast.File, visit func(use, declared token.Pos)) {
	functions, methods := map[string]*ast.FuncDecl{}, map[string]*ast.FuncDecl{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			functions[f.Name.Name] = f
		} else if ok {
			methods[f.Name.Name] = f
		}
	}
	for _, d := range file.Decls {
		selected := map[*ast.Ident]bool{}
		ast.Inspect(d, func(n ast.Node) bool {
			var f *ast.FuncDecl
			switch x := n.(type) {
			case *ast.SelectorExpr:
				selected[x.Sel] = true
				f = methods[x.Sel.Name]
			case *ast.Ident:
				if own := functions[x.Name]; own != nil && !selected[x] && x != own.Name && x.Obj != nil && x.Obj.Decl == own {
					f = own
				}
			}
			if f != nil && ast.Decl(f) != d {
				visit(n.Pos(), f.Pos())
			}
			return true
		})
	}
}
