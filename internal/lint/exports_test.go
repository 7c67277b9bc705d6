package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExportsAreUsed fails on an exported name that no other package, external test or
// example uses: unexport or delete it, or show it in an example. A method that satisfies
// an interface counts as used, and a type, with its constants, where a used name's type
// mentions it. testdata/unused.txt lists the exceptions; it may only shrink.
func TestExportsAreUsed(t *testing.T) {
	m := loadModule(t)
	code := map[string][]*ast.File{}
	for _, path := range m.order {
		code[path] = m.check(t, path)
	}
	for _, path := range m.order { // tests may import packages that come later in the order
		m.checkTests(t, path, code[path])
	}
	m.readOtherModules(t)
	unused := m.unused()
	list, err := os.ReadFile(filepath.Join("testdata", "unused.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		known[strings.TrimSpace(line)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		if !known[name] {
			t.Errorf("%s: nothing outside its package uses %s", unused[name], name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if unused[name] == "" && name != "" {
			t.Errorf("%s is used or gone: take it off testdata/unused.txt", name)
		}
	}
}

// listed is the output of go list for a package of the module.
type listed struct {
	ImportPath, Name, Dir string

	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports           []string
}

// checkedModule is the module with the checked types of all its packages.
type checkedModule struct {
	set      *token.FileSet
	packages map[string]*listed
	order    []string // paths, imports first
	plain    map[string]*types.Package
	others   types.Importer // of packages outside the module, by their export data
	used     map[string]bool
	usedAny  map[string]bool // names that another module selects, of whatever they are
}

// goList returns the standard output of go list.
func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, &failed)
	}
	return out
}

func loadModule(t *testing.T) *checkedModule {
	t.Helper()
	m := &checkedModule{
		set: token.NewFileSet(), packages: map[string]*listed{}, plain: map[string]*types.Package{},
		used: map[string]bool{}, usedAny: map[string]bool{},
	}
	outside := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(goList(t, "-json=ImportPath,Name,Dir,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", "./..."))); ; {
		p := new(listed)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		m.packages[p.ImportPath] = p
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			outside[path] = true
		}
	}
	for path := range m.packages {
		delete(outside, path)
	}
	delete(outside, "unsafe")
	delete(outside, "C")
	files := map[string]string{}
	args := append([]string{"-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Sorted(maps.Keys(outside))...)
	for line := range strings.Lines(string(goList(t, args...))) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	m.others = importer.ForCompiler(m.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	seen := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		if p := m.packages[path]; p != nil && !seen[path] {
			seen[path] = true
			for _, imported := range p.Imports {
				visit(imported)
			}
			m.order = append(m.order, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(m.packages)) {
		visit(path)
	}
	return m
}

// importerOf imports packages of the module as checked, except path, which it imports with its
// internal tests, for the external tests of path.
type importerOf struct {
	m    *checkedModule
	path string
	own  *types.Package
}

func (i importerOf) Import(path string) (*types.Package, error) {
	switch {
	case path == "unsafe":
		return types.Unsafe, nil
	case path == i.path && i.own != nil:
		return i.own, nil
	case i.m.plain[path] != nil:
		return i.m.plain[path], nil
	}
	return i.m.others.Import(path)
}

// check type-checks the package at path without its tests, records the names that it uses, and
// returns its files. It ignores type errors, which the compiler reports.
func (m *checkedModule) check(t *testing.T, path string) []*ast.File {
	p := m.packages[path]
	code := m.parse(t, p.Dir, slices.Concat(p.GoFiles, p.CgoFiles))
	m.plain[path] = m.types(path, code, importerOf{m: m}, code)
	return code
}

// checkTests type-checks the internal tests of the package at path together with its files code, and
// its external tests, and records the names that the tests use.
func (m *checkedModule) checkTests(t *testing.T, path string, code []*ast.File) {
	p := m.packages[path]
	own := m.plain[path]
	if len(p.TestGoFiles) > 0 {
		for _, file := range code { // checked and recorded above
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					f.Body = nil
				}
			}
		}
		tests := m.parse(t, p.Dir, p.TestGoFiles)
		own = m.types(path, slices.Concat(code, tests), importerOf{m: m}, tests)
	}
	if len(p.XTestGoFiles) > 0 {
		tests := m.parse(t, p.Dir, p.XTestGoFiles)
		m.types(path+"_test", tests, importerOf{m, path, own}, tests)
	}
}

func (m *checkedModule) parse(t *testing.T, dir string, names []string) (files []*ast.File) {
	for _, name := range names {
		file, err := parser.ParseFile(m.set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// types type-checks files as the package at path; from imports other packages. For the files in
// notes it records the names of other packages that they use, and the package's own names that
// their examples use.
func (m *checkedModule) types(path string, files []*ast.File, from types.Importer, notes []*ast.File) *types.Package {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: from, FakeImportC: true, Error: func(error) {}}
	pkg, _ := cfg.Check(path, m.set, files, info)
	for _, file := range notes {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			example := ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") && strings.HasSuffix(m.set.Position(f.Pos()).Filename, "_test.go")
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if obj := info.Uses[id]; obj != nil && obj.Pkg() != nil && (example || obj.Pkg().Path() != path) {
						m.used[keyOf(obj)] = true
					}
				}
				return true
			})
		}
	}
	return pkg
}

// keyOf returns a key of an object: its package's path and its name, or its type and method.
func keyOf(obj types.Object) string {
	name := obj.Name()
	if f, ok := obj.(*types.Func); ok {
		f = f.Origin()
		if recv := f.Signature().Recv(); recv != nil {
			of := recv.Type()
			if p, ok := of.(*types.Pointer); ok {
				of = p.Elem()
			}
			if named, ok := of.(*types.Named); ok {
				name = named.Obj().Name() + "." + name
			}
		}
	}
	return obj.Pkg().Path() + "." + name
}

// readOtherModules records the names that the other modules of the repository use.
func (m *checkedModule) readOtherModules(t *testing.T) {
	for _, name := range everyFile(t) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		full := filepath.Join("..", "..", filepath.FromSlash(name))
		abs, err := filepath.Abs(filepath.Dir(full))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(slices.Collect(maps.Values(m.packages)), func(p *listed) bool { return p.Dir == abs }) {
			continue
		}
		file, err := parser.ParseFile(m.set, full, nil, parser.SkipObjectResolution)
		if err != nil || !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return strings.Contains(i.Path.Value, module) }) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				m.usedAny[s.Sel.Name] = true
			}
			return true
		})
	}
}

// unused returns the exported names that are not used, and their positions.
func (m *checkedModule) unused() map[string]string {
	candidates := map[string]types.Object{}
	for _, path := range m.order {
		if m.packages[path].Name == "main" {
			continue
		}
		scope := m.plain[path].Scope()
		for _, name := range scope.Names() {
			obj := scope.Lookup(name)
			if !obj.Exported() {
				continue
			}
			candidates[keyOf(obj)] = obj
			named, ok := obj.Type().(*types.Named)
			if _, isType := obj.(*types.TypeName); !isType || !ok {
				continue
			}
			if types.IsInterface(named) {
				continue // an implementation must have all methods of the interface
			}
			for f := range named.Methods() {
				if f.Exported() {
					candidates[keyOf(f)] = f
					m.used[keyOf(f)] = m.used[keyOf(f)] || m.satisfies(named, f.Name())
				}
			}
		}
	}
	for key, obj := range candidates {
		m.used[key] = m.used[key] || m.usedAny[obj.Name()]
	}
	m.spread(candidates)
	unused := map[string]string{}
	for key, obj := range candidates {
		if !m.used[key] {
			at := m.set.Position(obj.Pos())
			unused[strings.TrimPrefix(strings.TrimPrefix(key, module), "/")] = fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line)
		}
	}
	return unused
}

// customary lists methods that are called through interfaces of the standard library, and those that
// every configuration has.
var customary = []string{"WithDefaults", "Validate", "Unwrap", "Is", "As", "Timeout", "MarshalText", "UnmarshalText", "MarshalJSON", "UnmarshalJSON", "String", "Error", "Format", "GoString"}

// satisfies reports whether the method of the type named counts as used: it is customary, or an
// interface requires it that the type implements, or that a type which embeds it implements. The
// interfaces are those of the module and of the packages that the type's package imports. within are
// types that named embeds, directly or not, and that need no second look.
func (m *checkedModule) satisfies(named *types.Named, method string, within ...*types.Named) bool {
	if slices.Contains(customary, method) {
		return true
	}
	from := slices.Concat(slices.Collect(maps.Values(m.plain)), named.Obj().Pkg().Imports())
	for _, pkg := range from {
		for _, name := range pkg.Scope().Names() {
			obj, ok := pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok {
				continue
			}
			i, ok := obj.Type().Underlying().(*types.Interface)
			if !ok || !i.IsMethodSet() || !slices.ContainsFunc(slices.Collect(i.Methods()), func(f *types.Func) bool { return f.Name() == method }) {
				continue
			}
			if types.Implements(types.NewPointer(named), i) {
				return true
			}
		}
	}
	within = append(within, named)
	for _, pkg := range m.plain {
		for _, name := range pkg.Scope().Names() {
			outer, ok := pkg.Scope().Lookup(name).Type().(*types.Named)
			if ok && !slices.Contains(within, outer) && embeds(outer, named) && m.satisfies(outer, method, within...) {
				return true
			}
		}
	}
	return false
}

// TestTypesThatEmbedEachOther: the search for types that embed a type ends.
func TestTypesThatEmbedEachOther(t *testing.T) {
	pkg := types.NewPackage("p", "p")
	a := types.NewNamed(types.NewTypeName(0, pkg, "A", nil), nil, nil)
	b := types.NewNamed(types.NewTypeName(0, pkg, "B", nil), nil, nil)
	for outer, inner := range map[*types.Named]*types.Named{a: b, b: a} {
		pkg.Scope().Insert(outer.Obj())
		outer.SetUnderlying(types.NewStruct([]*types.Var{types.NewField(0, pkg, inner.Obj().Name(), types.NewPointer(inner), true)}, nil))
	}
	m := &checkedModule{plain: map[string]*types.Package{"p": pkg}}
	if m.satisfies(a, "Sing") {
		t.Error("an interface requires the method")
	}
}

// embeds reports whether the struct type outer embeds the type named or a pointer to it.
func embeds(outer, named *types.Named) bool {
	s, ok := outer.Underlying().(*types.Struct)
	for i := 0; ok && i < s.NumFields(); i++ {
		of := s.Field(i).Type()
		if p, isPointer := of.(*types.Pointer); isPointer {
			of = p.Elem()
		}
		if s.Field(i).Embedded() && types.Identical(of, named) {
			return true
		}
	}
	return false
}

// spread marks further candidates as used, until none is left to mark: the types that occur in the
// type of a used name, and the constants of a used type.
func (m *checkedModule) spread(candidates map[string]types.Object) {
	for more := true; more; {
		more = false
		mark := func(obj types.Object) {
			if obj.Pkg() != nil && !m.used[keyOf(obj)] && candidates[keyOf(obj)] != nil {
				m.used[keyOf(obj)] = true
				more = true
			}
		}
		for key, obj := range candidates {
			if c, ok := obj.(*types.Const); ok && !m.used[key] {
				if named, ok := c.Type().(*types.Named); ok && m.used[keyOf(named.Obj())] {
					mark(c)
				}
			}
			if m.used[key] {
				mentioned(obj.Type(), 0, mark)
			}
		}
	}
}

// mentioned calls mark for each named type that occurs in the type of. It looks into the
// definition of a named type only at depth 0, the outermost level.
func mentioned(of types.Type, depth int, mark func(types.Object)) {
	switch of := of.(type) {
	case *types.Alias:
		mark(of.Obj())
		mentioned(of.Rhs(), depth, mark)
	case *types.Named:
		mark(of.Obj())
		for arg := range of.TypeArgs().Types() {
			mentioned(arg, depth, mark)
		}
		for p := range of.TypeParams().TypeParams() {
			mentioned(p.Constraint(), depth+1, mark)
		}
		if depth == 0 {
			mentioned(of.Underlying(), depth+1, mark)
		}
	case *types.Pointer:
		mentioned(of.Elem(), depth+1, mark)
	case *types.Slice:
		mentioned(of.Elem(), depth+1, mark)
	case *types.Array:
		mentioned(of.Elem(), depth+1, mark)
	case *types.Chan:
		mentioned(of.Elem(), depth+1, mark)
	case *types.Map:
		mentioned(of.Key(), depth+1, mark)
		mentioned(of.Elem(), depth+1, mark)
	case *types.Signature:
		for p := range of.TypeParams().TypeParams() {
			mentioned(p.Constraint(), depth+1, mark)
		}
		for v := range of.Params().Variables() {
			mentioned(v.Type(), depth+1, mark)
		}
		for v := range of.Results().Variables() {
			mentioned(v.Type(), depth+1, mark)
		}
	case *types.Struct:
		for f := range of.Fields() {
			if f.Exported() || f.Embedded() {
				mentioned(f.Type(), depth+1, mark)
			}
		}
	case *types.Interface:
		for f := range of.Methods() {
			mentioned(f.Type(), depth+1, mark)
		}
	}
}
