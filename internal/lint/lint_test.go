package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/coppice-llm/coppice"

// onlyImporters names the packages that may use a third party.
var onlyImporters = map[string][]string{
	"github.com/asynkron/protoactor-go":       {"actors"},
	"github.com/alecthomas/kong":              {"cmd/coppice", "cmd/internal/complete", "cmd/internal/manpage"},
	"github.com/schollz/progressbar":          {"cmd/coppice"},
	"github.com/gofrs/flock":                  {"cmd/internal/hub"},
	"golang.org/x/text":                       {"tokenizer", "tokenizer/tokenfile"},
	"github.com/dlclark/regexp2":              {"tokenizer"},
	"golang.org/x/sync":                       {"bench", "bench/speculate"},
	"golang.org/x/sys":                        {"mempool/internal/blockio"},
	"github.com/klauspost/cpuid":              {"cmd/coppice", "internal/isa", "internal/isa/isatest"},
	"github.com/HdrHistogram/hdrhistogram-go": {"bench/load", "server/view"},
	"github.com/nats-io/nats.go":              {"events/nats"},
	"github.com/nats-io/nats-server":          {"internal/natstest"},
	"github.com/prometheus/client_golang":     {"server", "gateway", "gateway/replica", "internal/figures"},
	"charm.land/bubbletea":                    {"cmd/coppice"},
	"charm.land/lipgloss":                     {"cmd/coppice"},
	"github.com/ebitengine/purego":            {"engine/cuda/cudrv/internal/dlopen"},
	"gorgonia.org/cu":                         {"engine/cuda/cudrv/internal/cu"},
}

// coreNever lists packages of the standard library and zap that packages of ring core may not import.
var coreNever = []string{"sync", "sync/atomic", "context", "os", "net", "log", "log/slog", "math/rand", "math/rand/v2", "go.uber.org/zap"}

// coreExcept lists the files that may nevertheless import one of them, and why.
var coreExcept = map[string]string{
	"tokenizer/tokenfile/open.go os": "the one place that reads a tokenizer's files",
	"tokenizer/chat/open.go os":      "the one place that reads a template's files",

	"router/kvindex/sharded.go sync":        "the one place where goroutines share an index",
	"router/kvindex/sharded.go sync/atomic": "the same",
}

// lumber lists package names that do not describe their contents.
var lumber = []string{"util", "utils", "common", "helpers", "helper", "types", "base", "misc"}

// maxLines bounds the lines of a file. A longer one must be split.
const maxLines = 500

type source struct {
	pkg  string // path in the module, "." for the root
	path string // slash-separated, from the module's root
	test bool
	file *ast.File
	set  *token.FileSet
}

func (s *source) lines() int { return s.set.Position(s.file.FileEnd).Line }

// sources returns the Go files of the module, parsed once for all tests.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("%d Go files found: not the whole tree", len(all))
	}
	return all
}

var parsed = sync.OnceValues(func() ([]source, error) {
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(p, "go.mod")); d.IsDir() && p != root && err == nil {
			return filepath.SkipDir // another module
		}
		if d.IsDir() || filepath.Ext(p) != ".go" {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		all = append(all, source{path.Dir(rel), rel, strings.HasSuffix(rel, "_test.go"), file, set})
		return err
	})
	return all, err
})

func imports(s *source) []string {
	var paths []string
	for _, spec := range s.file.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

func TestImportsFollowTheTable(t *testing.T) {
	rows := table(t)
	for _, s := range sources(t) {
		part := partOf(rows, s.pkg)
		if part == "" {
			t.Errorf("%s: package %s belongs to no row of ARCHITECTURE.md", s.path, s.pkg)
			continue
		}
		if s.test {
			continue // tests may look from anywhere
		}
		for _, imported := range imports(&s) {
			rel := within(imported)
			if of := partOf(rows, rel); rel != "" && of != part && !rows[part].allows(of) {
				t.Errorf("%s: %s may not import %s by its row in ARCHITECTURE.md", s.path, part, rel)
			}
			for third, owners := range onlyImporters {
				if strings.HasPrefix(imported, third) && !slices.Contains(owners, s.pkg) {
					t.Errorf("%s: only %v may import %s", s.path, owners, third)
				}
			}
		}
	}
}

func TestCoreIsPure(t *testing.T) {
	rows := table(t)
	for _, s := range sources(t) {
		if s.test || rows[partOf(rows, s.pkg)].ring != "core" {
			continue
		}
		for _, imported := range imports(&s) {
			if slices.Contains(coreNever, imported) && coreExcept[s.path+" "+imported] == "" {
				t.Errorf("%s: a core package imports %s", s.path, imported)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "starts a goroutine"
			case *ast.SelectStmt:
				what = "selects"
			case *ast.SendStmt:
				what = "sends on a channel"
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Sleep", "After", "Tick"}, n.Sel.Name) {
					what = "looks at the clock"
				}
			}
			if what != "" {
				t.Errorf("%s: a core package %s", s.set.Position(n.Pos()), what)
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		documented[s.pkg] = documented[s.pkg] || !s.test && s.file.Doc != nil
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func TestNoLumberRoom(t *testing.T) {
	for _, s := range sources(t) {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")
		for _, n := range []string{name, path.Base(s.pkg)} {
			if slices.Contains(lumber, n) {
				t.Errorf("%s: %q says nothing about what is in it", s.path, n)
			}
		}
	}
}

func TestFilesAreOneIdea(t *testing.T) {
	for _, s := range sources(t) {
		if n := s.lines(); n > maxLines {
			t.Errorf("%s has %d lines, at most %d fit one idea", s.path, n, maxLines)
		}
	}
}

// TestExceptionsAreUsed checks that every exception is still needed.
func TestExceptionsAreUsed(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		for _, imported := range imports(&s) {
			used[s.path+" "+imported] = true
		}
	}
	for exception := range coreExcept {
		if !used[exception] {
			t.Errorf("exception %q is not needed any more", exception)
		}
	}
}

// everyFile lists the files under the root by their paths from it, without git's own.
func everyFile(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil // the .git file of a work tree
		}
		rel, err := filepath.Rel(root, file)
		all = append(all, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestNamesOfFiles checks that file names are valid on every system and in the module cache.
func TestNamesOfFiles(t *testing.T) {
	for _, file := range everyFile(t) {
		plain := strings.TrimLeft(strings.ToLower(path.Base(file)), "abcdefghijklmnopqrstuvwxyz0123456789_.-")
		if plain != "" {
			t.Errorf("%s: a name has letters, digits, _, . and - alone", file)
		}
	}
}
