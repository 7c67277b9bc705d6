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
	"testing"
)

const module = "github.com/coppice-llm/coppice"

// mayImport is the table of ARCHITECTURE.md: for each package of the module, "."
// being the root, what else of the module it may import. A package that is not
// listed fails the test: its place must be decided first.
var mayImport = map[string][]string{
	"kv":                  {"internal/wide"},
	"internal/conns":      {},
	"internal/enum":       {},
	"internal/eventurl":   {"events/nats", "events/zmq"},
	"internal/heap":       {},
	"internal/f32":        {},
	"internal/figures":    {},
	"internal/hashcopy":   {},
	"internal/invariants": {},
	"internal/jsontext":   {},
	"internal/leaks":      {},
	"internal/lint":       {},
	"internal/opticks":    {},
	"internal/sites":      {},
	"internal/slogcore":   {},
	"internal/web":        {},
	"internal/wording":    {},
	"internal/wide":       {"internal/invariants"},

	"engine/model/gguf": {},

	"tokenizer":                     {"kv", "internal/invariants"},
	"tokenizer/chat":                {},
	"tokenizer/bundle":              {},
	"engine":                        {"kv", "internal/invariants"},
	"radixcache":                    {"kv", "internal/invariants", "internal/wide", "internal/radixcache/missratio"},
	"internal/radixcache/missratio": {"kv", "internal/wide"},
	"mempool":                       {"kv", "internal/hashcopy", "internal/invariants"},
	"grammar":                       {"kv"},
	"internal/grammar/jsonschema":   {"grammar"},
	"scheduler":                     {"kv", "radixcache", "mempool", "mempool/tiering", "engine", "grammar", "internal/scheduler/planted", "internal/invariants", "internal/wide"},
	"internal/scheduler/planted":    {},

	"mempool/tiering":          {"kv", "mempool"},
	"internal/mempool/carrier": {"kv", "engine", "mempool", "mempool/tiering"},
	"internal/mempool/inspect": {"mempool", "internal/mempool/blockio"},
	"internal/mempool/blockio": {"mempool"},
	"internal/mempool/ops":     {"mempool"},
	"internal/mempool/slotted": {"mempool", "internal/mempool/ops"},
	"mempool/storetest":        {"kv", "mempool", "internal/mempool/blockio", "internal/leaks"},
	"mempool/cudamem":          {"kv", "engine/cuda/cudrv", "internal/mempool/hostmem"},
	"internal/mempool/hostmem": {"kv", "mempool", "internal/mempool/blockio", "internal/mempool/ops", "internal/mempool/slotted"},
	"internal/mempool/diskmem": {"kv", "mempool", "internal/mempool/blockio", "internal/mempool/ops", "internal/mempool/slotted"},
	"internal/mempool/dirmem":  {"kv", "mempool", "internal/mempool/blockio", "internal/mempool/ops"},

	"internal/engine/sampling":      {"kv", "engine", "internal/f32"},
	"engine/enginetest":             {"kv", "engine"},
	"internal/engine/intake":        {"kv", "engine"},
	"engine/backends":               {"kv", "engine", "engine/cpu", "engine/cuda", "engine/cuda/cudrv", "engine/cuda/cudrv/system", "engine/cuda/cudrv/vm", "engine/cuda/ptxvm", "engine/model", "engine/sim"},
	"engine/sim":                    {"kv", "engine", "internal/engine/sampling"},
	"engine/model":                  {"kv", "tokenizer", "engine/model/gguf", "internal/f32", "internal/opticks"},
	"engine/cuda":                   {"kv", "engine", "internal/engine/intake", "engine/model", "engine/cuda/cudrv", "engine/cuda/kernels", "internal/f32", "mempool/cudamem"},
	"engine/cuda/cudrv":             {},
	"engine/cuda/cudrv/cudrvtest":   {"engine/cuda/cudrv", "engine/cuda/kernels"},
	"engine/cuda/cudrv/cu":          {"engine/cuda/cudrv"},
	"engine/cuda/cudrv/dlopen":      {"engine/cuda/cudrv"},
	"engine/cuda/cudrv/stub":        {"engine/cuda/cudrv"},
	"engine/cuda/cudrv/stub/linked": {"engine/cuda/cudrv/stub"},
	"engine/cuda/cudrv/stub/source": {"engine/cuda/cudrv/stub"},
	"engine/cuda/cudrv/system":      {"engine/cuda/cudrv", "engine/cuda/cudrv/cu", "engine/cuda/cudrv/dlopen"},
	"engine/cuda/cudrv/vm":          {"engine/cuda/cudrv", "engine/cuda/ptxvm"},
	"engine/cuda/gpucheck":          {"kv", "engine", "engine/cuda", "engine/cuda/cudrv", "engine/cuda/cudrv/vm", "engine/cuda/kernels", "engine/cuda/ptxvm", "engine/enginetest", "engine/model"},
	"engine/cuda/kernels":           {},
	"engine/cuda/ptxvm":             {"internal/f32"},
	"engine/cpu":                    {"kv", "engine", "internal/engine/intake", "engine/model", "engine/model/gguf", "internal/engine/sampling", "mempool", "internal/mempool/hostmem", "internal/f32"},

	"router":                 {"kv", "internal/invariants"},
	"internal/router/global": {},
	"router/kvindex":         {"kv", "internal/invariants", "internal/wide"},

	"events":                        {"kv", "events/wire"},
	"events/card":                   {},
	"events/wire":                   {},
	"events/zmq":                    {"events"},
	"events/nats":                   {"events"},
	"internal/events/nats/embedded": {},
	"internal/events/eventstest":    {"events", "kv"},

	"internal/scheduler/schedtest": {"kv", "engine", "engine/sim", "grammar", "mempool", "mempool/tiering", "radixcache", "scheduler", "internal/scheduler/planted", "internal/invariants"},

	"actors":     {"kv", "engine", "mempool", "internal/mempool/carrier", "internal/mempool/dirmem", "internal/mempool/diskmem", "internal/mempool/hostmem", "mempool/tiering", "radixcache", "scheduler", "tokenizer", "grammar", "internal/grammar/jsonschema", "events"},
	".":          {"actors", "kv", "engine", "internal/slogcore", "internal/wording", "mempool", "mempool/tiering", "radixcache", "scheduler", "tokenizer", "tokenizer/chat", "events"},
	"fleet":      {".", "events", "events/card", "events/nats", "events/wire", "events/zmq", "internal/eventurl", "internal/slogcore", "internal/wording", "tokenizer/bundle", "tokenizer/chat"},
	"local":      {".", "engine", "engine/cpu", "engine/model", "internal/wording", "tokenizer", "tokenizer/bundle", "tokenizer/chat"},
	"openai":     {"internal/jsontext", "kv", "tokenizer/chat"},
	"bench/load": {"kv", "openai"},

	"internal/gateway":           {"events/card", "events/nats", "internal/gateway/dispatch", "internal/gateway/fleetview", "internal/gateway/members", "internal/gateway/prompt", "internal/gateway/residency", "internal/conns", "internal/figures", "internal/sites", "internal/web", "kv", "router", "internal/router/global", "openai", "router/kvindex", "tokenizer/chat"},
	"internal/gateway/dispatch":  {"events", "events/card", "internal/gateway/members", "internal/gateway/residency", "kv", "router", "internal/router/global", "router/kvindex"},
	"internal/gateway/members":   {"events", "events/card", "events/nats", "events/zmq", "kv", "openai", "tokenizer", "tokenizer/bundle", "tokenizer/chat"},
	"internal/gateway/replica":   {"events/nats", "internal/gateway/dispatch", "internal/figures", "kv", "router"},
	"internal/gateway/fleetview": {"internal/web"},
	"internal/gateway/prompt":    {"kv", "openai", "tokenizer", "tokenizer/chat"},
	"internal/gateway/residency": {"kv", "events", "router/kvindex"},
	"bench/fleet":                {"bench", "bench/fleet/mocker", "kv", "engine", "engine/sim", "mempool", "radixcache", "router", "router/kvindex", "scheduler"},
	"bench/fleet/mocker":         {"kv", "internal/invariants"},

	"server":                 {".", "events", "events/card", "engine", "internal/conns", "internal/figures", "internal/sites", "internal/slogcore", "internal/web", "internal/wording", "kv", "radixcache", "scheduler", "openai", "internal/server/answer", "internal/server/view", "tokenizer", "tokenizer/bundle", "tokenizer/chat"},
	"internal/hub":           {},
	"internal/server/answer": {".", "engine", "internal/jsontext", "kv", "openai", "tokenizer"},
	"internal/server/view":   {".", "engine", "internal/figures", "internal/web", "kv", "radixcache", "scheduler", "tokenizer"},
	"bench":                  {".", "kv", "radixcache", "engine", "engine/sim", "mempool", "router/kvindex", "scheduler", "internal/opticks", "internal/wide"},
	"cmd/coppice":            {".", "fleet", "internal/eventurl", "internal/conns", "internal/sites", "bench", "bench/fleet", "bench/load", "events", "events/card", "events/nats", "internal/gateway", "internal/gateway/fleetview", "internal/gateway/members", "internal/gateway/prompt", "internal/gateway/replica", "internal/hub", "router", "internal/router/global", "tokenizer/bundle", "server", "internal/server/view", "engine", "engine/backends", "engine/cpu", "engine/cuda", "engine/cuda/cudrv", "engine/cuda/cudrv/system", "engine/cuda/cudrv/vm", "engine/cuda/gpucheck", "engine/cuda/ptxvm", "engine/model", "engine/model/gguf", "engine/sim", "kv", "local", "mempool", "internal/mempool/inspect", "mempool/tiering", "openai", "radixcache", "router/kvindex", "scheduler", "internal/scheduler/schedtest", "tokenizer", "tokenizer/chat"},
}

// everybodys packages import nothing of the module, and any package may import them.
var everybodys = []string{"internal/enum", "internal/heap"}

// onlyImporters names the packages that may use a third party.
var onlyImporters = map[string][]string{
	"github.com/asynkron/protoactor-go":       {"actors"},
	"github.com/alecthomas/kong":              {"cmd/coppice"},
	"github.com/schollz/progressbar":          {"cmd/coppice"},
	"golang.org/x/text":                       {"tokenizer"},
	"github.com/dlclark/regexp2":              {"tokenizer"},
	"golang.org/x/sys":                        {"engine/cpu", "internal/hashcopy", "internal/mempool/blockio"},
	"github.com/HdrHistogram/hdrhistogram-go": {"bench/load"},
	"github.com/nats-io/nats.go":              {"events/nats"},
	"github.com/nats-io/nats-server":          {"internal/events/nats/embedded"},
	"github.com/prometheus/client_golang":     {"server", "internal/gateway", "internal/gateway/replica", "internal/figures"},
	"charm.land/bubbletea":                    {"cmd/coppice"},
	"charm.land/lipgloss":                     {"cmd/coppice"},
	"github.com/ebitengine/purego":            {"engine/cuda/cudrv/dlopen"},
	"gorgonia.org/cu":                         {"engine/cuda/cudrv/cu"},
}

// core packages are pure: single owner, no goroutine, no clock, replayable.
var core = []string{"kv", "tokenizer", "tokenizer/chat", "engine", "radixcache", "internal/radixcache/missratio", "mempool", "mempool/tiering", "grammar", "internal/grammar/jsonschema", "scheduler", "events/wire", "events/card", "router", "internal/router/global", "router/kvindex", "bench/fleet/mocker"}

// coreNever are packages of the standard library and zap that core does not import.
var coreNever = []string{"sync", "sync/atomic", "context", "os", "net", "log", "log/slog", "math/rand", "math/rand/v2", "go.uber.org/zap"}

// coreExcept are the files that may break one of those, and why.
var coreExcept = map[string]string{
	"tokenizer/open.go os":      "the one place that reads a tokenizer's files",
	"tokenizer/chat/open.go os": "the one place that reads a template's files",

	"router/kvindex/sharded.go sync":        "the one place where goroutines share an index",
	"router/kvindex/sharded.go sync/atomic": "the same",
}

// lumber are names that say nothing about what they hold.
var lumber = []string{"util", "utils", "common", "helpers", "helper", "types", "base", "misc"}

// maxLines is where a file must be two.
const maxLines = 500

type source struct {
	pkg  string // path in the module, "." for the root
	path string // slash-separated, from the module's root
	test bool
	file *ast.File
	set  *token.FileSet
}

func (s *source) lines() int { return s.set.Position(s.file.FileEnd).Line }

func sources(t *testing.T) []source {
	t.Helper()
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
			return filepath.SkipDir // a module of its own
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
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("%d Go files found under %s: not the whole house", len(all), root)
	}
	return all
}

func imports(s *source) []string {
	var paths []string
	for _, spec := range s.file.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, s := range sources(t) {
		allowed, listed := mayImport[s.pkg]
		if !listed {
			t.Errorf("%s: package %s has no row in the import table of internal/lint and ARCHITECTURE.md", s.path, s.pkg)
			continue
		}
		if s.test {
			continue // tests may look from anywhere
		}
		for _, imported := range imports(&s) {
			rel, ours := strings.CutPrefix(imported, module)
			if rel = strings.TrimPrefix(rel, "/"); rel == "" {
				rel = "."
			}
			if ours && !slices.Contains(allowed, rel) && !slices.Contains(everybodys, rel) {
				t.Errorf("%s: %s may not import %s", s.path, s.pkg, rel)
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
	for _, s := range sources(t) {
		if s.test || !slices.Contains(core, s.pkg) {
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

// TestExceptionsAreUsed keeps the list of exceptions from outliving its reasons.
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
	for pkg := range mayImport {
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(pkg))); err != nil {
			t.Errorf("the import table lists %s, which is not there", pkg)
		}
	}
}

// everyFile lists the files under the root by their paths from it, but what git keeps for itself.
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
			return nil // of a work tree
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

// TestNamesOfFiles: names that every system takes, and the module cache with them.
func TestNamesOfFiles(t *testing.T) {
	for _, file := range everyFile(t) {
		plain := strings.TrimLeft(strings.ToLower(path.Base(file)), "abcdefghijklmnopqrstuvwxyz0123456789_.-")
		if plain != "" {
			t.Errorf("%s: a name has letters, digits, _, . and - alone", file)
		}
	}
}
