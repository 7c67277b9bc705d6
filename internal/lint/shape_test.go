package lint

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Bounds of functions and types, so that a reader can keep one in mind.
const (
	maxFuncLines = 70
	maxFields    = 20
	maxMethods   = 60
)

// large lists the functions and types beyond these bounds, with their sizes. Entries may shrink and be
// removed, but not grow or be added: split the function, or give part of the struct a type.
var large = map[string]int{
	"bench fields schedPlay":                            23,
	"bench/fleet fields play":                           21,
	"engine/cpu fields step":                            28,
	"actors/look_test.go func TestPinPrefix":            85,
	"actors/storm_test.go func storm":                   138,
	"cmd/coppice/route_test.go func TestRouteRefuses":   75,
	"grammar/hostile_test.go func TestHostileRules":     83,
	"grammar/jsonschema/refuse_test.go func TestErrors": 93,
	"router/buckets_test.go func TestPools":             93,
	"router/fleet_test.go func playFleet":               122,
	"router/model_test.go func world.step":              92,
	"router/models_test.go func TestModels":             81,
	"router/router_test.go func TestWorkersComeAndGo":   71,
	"router/tree_test.go func playTree":                 77,
	"server/api_test.go func TestSmallEndpoints":        73,
	"tokenizer/chat/filters.go func filters":            72,
}

// plain lists the endings of the names of structs that hold independent values and no state:
// configurations, requests, command lines, counters and measurements.
var plain = []string{"Config", "Request", "Cmd", "Metrics", "Stats", "Counts", "Report", "Result", "Figures", "Peeked", "JSON"}

// isPlain reports whether a struct is a list of values and not a state: by its name, or because every
// field has a tag, as in structs for JSON.
func isPlain(name string, fields *ast.FieldList) bool {
	if slices.ContainsFunc(plain, func(end string) bool {
		return strings.HasSuffix(name, end) || strings.HasSuffix(name, strings.ToLower(end[:1])+end[1:])
	}) {
		return true
	}
	return !slices.ContainsFunc(fields.List, func(f *ast.Field) bool { return f.Tag == nil })
}

// TestShape bounds functions, the fields of structs with state, and the methods of types.
func TestShape(t *testing.T) {
	sizes := map[string]int{}
	methods := map[string]int{}
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if of := receiver(d); of != "" {
					name = of + "." + name
					if !s.test {
						methods[s.pkg+" "+of]++
					}
				}
				lines := s.set.Position(d.End()).Line - s.set.Position(d.Pos()).Line + 1
				over(sizes, s.path+" func "+name, lines, maxFuncLines)
			case *ast.GenDecl:
				if d.Tok != token.TYPE || s.test || s.pkg == "events/wire" {
					continue
				}
				for _, spec := range d.Specs {
					spec := spec.(*ast.TypeSpec)
					if of, ok := spec.Type.(*ast.StructType); ok && !isPlain(spec.Name.Name, of.Fields) {
						over(sizes, s.pkg+" fields "+spec.Name.Name, of.Fields.NumFields(), maxFields)
					}
				}
			}
		}
	}
	for of, n := range methods {
		over(sizes, strings.Replace(of, " ", " methods ", 1), n, maxMethods)
	}
	for what, n := range sizes {
		if known := large[what]; n > known {
			t.Errorf("%s: %d, listed are %d; bounds are %d lines a function, %d fields a struct with state, %d methods a type", what, n, known, maxFuncLines, maxFields, maxMethods)
		}
	}
	for what, known := range large {
		if n := sizes[what]; n == 0 {
			t.Errorf("%s is within bounds now: take it off the list", what)
		} else if n < known {
			t.Logf("%s is %d, listed as %d: lower it", what, n, known)
		}
	}
}

func over(sizes map[string]int, what string, n, most int) {
	if n > most {
		sizes[what] = n
	}
}

// receiver returns the name of a method's type, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch x := of.(type) {
		case *ast.StarExpr:
			of = x.X
		case *ast.IndexExpr:
			of = x.X
		case *ast.IndexListExpr:
			of = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// fileNames finds the names of Go files, assembly and pages in a text.
var fileNames = regexp.MustCompile(`[A-Za-z0-9_][A-Za-z0-9_./-]*\.(?:go|s|md)\b`)

// TestCommentsNameFilesThatExist checks that files named in comments exist, in the directory of the
// comment's file or by a path from the root.
func TestCommentsNameFilesThatExist(t *testing.T) {
	exist := map[string]bool{}
	all := sources(t)
	for _, name := range everyFile(t) {
		exist[name] = true
	}
	for _, s := range all {
		if ast.IsGenerated(s.file) {
			continue
		}
		for _, group := range s.file.Comments {
			for _, name := range fileNames.FindAllString(group.Text(), -1) {
				if !exist[name] && !exist[path.Join(s.pkg, name)] {
					t.Errorf("%s: a comment names %s, which is neither beside it nor a path from the root", s.set.Position(group.Pos()), name)
				}
			}
		}
	}
}
