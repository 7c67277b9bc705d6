package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rings lists the values of the second column of ARCHITECTURE.md's table.
var rings = []string{"core", "device", "shell", "base", "test"}

// row is a part's row in the table of ARCHITECTURE.md.
type row struct {
	ring      string
	mayImport []string // other parts; "any" allows all
}

func (r row) allows(part string) bool {
	return part == ground || slices.Contains(r.mayImport, part) || slices.Contains(r.mayImport, "any")
}

// ground is the part that every other may import.
const ground = "internal"

// partOf returns the row that a package belongs to: the one with the longest path that leads to it, "" for none.
func partOf(rows map[string]row, pkg string) string {
	for at := pkg; ; at = path.Dir(at) {
		if _, listed := rows[at]; listed && (at != "." || pkg == ".") {
			return at
		}
		if at == "." {
			return ""
		}
	}
}

var (
	tableRow  = regexp.MustCompile("^\\| `([^`]+)` \\| ([a-z]+) \\| [^|]+ \\| ([^|]*) \\|$")
	tableName = regexp.MustCompile("^`([^`]+)`$")
)

// table reads the table of parts in ARCHITECTURE.md, which other tests enforce.
func table(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, plan, ok := strings.Cut(string(text), "| part | ring | what | may import |\n")
	plan, _, end := strings.Cut(plan, "\n\n")
	if !ok || !end {
		t.Fatal("ARCHITECTURE.md has no table of parts")
	}
	rows := map[string]row{}
	for _, line := range strings.Split(plan, "\n") {
		if strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| **") {
			continue // the line below the column heads, or a heading
		}
		m := tableRow.FindStringSubmatch(line)
		if m == nil || !slices.Contains(rings, m[2]) {
			t.Errorf("ARCHITECTURE.md: not a row of `part`, ring of %v, what, `imports`: %s", rings, line)
			continue
		}
		if _, twice := rows[m[1]]; twice {
			t.Errorf("ARCHITECTURE.md: %s has two rows", m[1])
		}
		r := row{ring: m[2]}
		for _, name := range strings.FieldsFunc(m[3], func(c rune) bool { return c == ',' || c == ' ' }) {
			r.mayImport = append(r.mayImport, strings.Trim(name, "`"))
			if name != "any" && !tableName.MatchString(name) {
				t.Errorf("ARCHITECTURE.md: %s may import %s: want names in backquotes", m[1], name)
			}
		}
		rows[m[1]] = r
	}
	return rows
}

// maxRows is the largest number of rows of the table.
const maxRows = 40

// TestTableIsNeeded reports rows and imports of the table that no code uses.
func TestTableIsNeeded(t *testing.T) {
	rows := table(t)
	used := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			for _, imported := range imports(&s) {
				used[partOf(rows, s.pkg)+" "+partOf(rows, within(imported))] = true
			}
		}
	}
	if len(rows) > maxRows {
		t.Errorf("ARCHITECTURE.md: the table has %d rows, at most %d can be kept in mind", len(rows), maxRows)
	}
	for pkg, r := range rows {
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(pkg))); err != nil {
			t.Errorf("ARCHITECTURE.md lists %s, which does not exist", pkg)
		}
		for _, name := range r.mayImport {
			if _, listed := rows[name]; !listed && name != "any" {
				t.Errorf("ARCHITECTURE.md: %s may import %s, which has no row", pkg, name)
			}
			if !used[pkg+" "+name] && name != "any" {
				t.Errorf("ARCHITECTURE.md: %s may import %s but does not: take it off the row", pkg, name)
			}
		}
	}
}

// within returns the path of an import inside the module, "." for the root and "" for other modules.
func within(imported string) string {
	rel, ours := strings.CutPrefix(imported, module)
	switch {
	case !ours:
		return ""
	case rel == "":
		return "."
	default:
		return strings.TrimPrefix(rel, "/")
	}
}
