package lint

import (
	"go/ast"
	"path"
	"regexp"
	"strconv"
	"testing"

	"github.com/coppice-llm/coppice/internal/wording"
)

// TestErrorNamesAreKnown checks that package wording replaces the package names at the beginning of
// errors, so that no such name reaches a caller of the root package or of HTTP.
func TestErrorNamesAreKnown(t *testing.T) {
	prefix := regexp.MustCompile(`^([a-z][a-z0-9]*): `)
	apart := regexp.MustCompile(`^(internal/)?(bench|cmd|gateway|tools|router/global|engine/enginetest|scheduler/schedtest|events/nats/embedded)(/|$)`) // none of these is below the root
	for _, s := range sources(t) {
		name := path.Base(s.pkg)
		if s.test || apart.MatchString(s.pkg) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			to, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || to.Sel.Name != "New" && to.Sel.Name != "Errorf" {
				return true
			}
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			text, _ := strconv.Unquote(literal.Value)
			if m := prefix.FindStringSubmatch(text); m != nil && m[1] == name && wording.Public(m[0]) == m[0] {
				t.Errorf("%s: errors begin with %q, which internal/wording does not know", s.set.Position(call.Pos()), m[0])
			}
			return true
		})
	}
}
