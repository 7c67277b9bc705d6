package lint

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var followRecipes = flag.Bool("recipes", false, "follow the recipes of CONTRIBUTING.md in a copy of the tree, which takes minutes")

// recipe is one of CONTRIBUTING.md as a reader follows it.
type recipe struct {
	title string
	files []string // to be made of the recipe's blocks of code, in their order; "" for a block that goes elsewhere
	edits []edit
	tests []string // arguments of go test, which must pass
}

// edit puts text behind the first place in a file that has another text.
type edit struct{ file, behind, text string }

var kept = []recipe{
	{
		title: "an eviction policy",
		files: []string{"radixcache/biggest.go", "radixcache/lru2.go"},
		edits: []edit{
			{"radixcache/policy.go", "\tSession:   {\"session\", newSession},\n", "\tBiggest: {\"biggest\", newBiggest},\n\tLRU2: {\"lru2\", newLRU2},\n"},
			{"radixcache/lifetime_test.go", "Priority: 3, CostAware: 1", ", Biggest: 1, LRU2: 1"},
			{"radixcache/lifetime_test.go", "for _, policy := range []Policy{LFU, SLRU", ", LRU2"},
		},
		tests: []string{"./radixcache", "./cmd/coppice", "-run", "Fuzz|Model|Polic|ReuseByInsert|BenchRadix$"},
	},
	{
		title: "a store for tiers",
		files: []string{"mempool/internal/mapmem/mapmem.go", "mempool/internal/mapmem/mapmem_test.go"},
		tests: []string{"./mempool/internal/mapmem"},
	},
	{
		title: "an endpoint",
		files: []string{"server/limits.go", "server/limits_test.go"},
		edits: []edit{
			{"server/routes.go", "serve: version}))\n", "\ton(\"/v1/limits\", get(endpoint{access: anyKey, serve: (*call).limits}))\n"},
			{"openai/openapi.json", "  \"paths\": {\n", `    "/v1/limits": {
      "get": {
        "operationId": "limits",
        "summary": "How large a request may be",
        "responses": {
          "200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Limits"}}}},
          "401": {"$ref": "#/components/responses/NoKey"},
          "403": {"$ref": "#/components/responses/Forbidden"},
          "500": {"$ref": "#/components/responses/Failed"},
          "503": {"$ref": "#/components/responses/Unavailable"}
        }
      }
    },
`},
			{"openai/openapi.json", "    \"schemas\": {\n", `      "Limits": {
        "type": "object",
        "properties": {"body_bytes": {"type": "integer"}, "choices": {"type": "integer"}},
        "required": ["body_bytes", "choices"]
      },
`},
		},
		tests: []string{"./openai", "./server", "-run", "Document|SmallEndpoints|Limits"},
	},
	{
		title: "a metric",
		files: []string{""},
		edits: []edit{
			{"scheduler/metrics.go", "type Metrics struct {\n", "\tStepTokens uint64 // run in steps\n"},
			{"scheduler/step.go", "\ts.metrics.Steps++\n", "\ts.metrics.StepTokens += uint64(p.tokens)\n"},
			{"server/view/stats.go", "type Totals struct {\n", "\tStepTokens uint64 `json:\"step_tokens\" metric:\"step_tokens_total\" help:\"Tokens run in steps of the device.\"`\n"},
			{"docs/metrics.md", "| `coppice_steps_total` | counter |  | Steps of the device. |\n", "| `coppice_step_tokens_total` | counter |  | Tokens run in steps of the device. |\n"},
		},
		tests: []string{"./server", "./server/view", "./internal/figures"},
	},
}

// TestRecipes follows each recipe in a copy of the tree: its blocks of code, where it says that they go, and its edits. It
// knows nothing that the recipe does not say.
func TestRecipes(t *testing.T) {
	if !*followRecipes {
		t.Skip("run it with -args -recipes")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range kept {
		t.Run(r.title, func(t *testing.T) {
			_, section, ok := strings.Cut(string(text), "## Recipe: "+r.title+"\n")
			if section, _, _ = strings.Cut(section, "\n## "); !ok {
				t.Fatalf("CONTRIBUTING.md has no recipe %q", r.title)
			}
			tree := copyTree(t)
			blocks := strings.Split(section, "```go\n")[1:]
			for i, file := range r.files {
				if i >= len(blocks) {
					t.Fatalf("the recipe has %d blocks of code, want one for %s", len(blocks), file)
				}
				if code, _, _ := strings.Cut(blocks[i], "```"); file != "" {
					if !strings.Contains(section, file) {
						t.Errorf("the recipe does not name %s", file)
					}
					write(t, filepath.Join(tree, file), code)
				}
			}
			for _, e := range r.edits {
				path := filepath.Join(tree, e.file)
				old, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				before, after, ok := strings.Cut(string(old), e.behind)
				if !ok {
					t.Fatalf("%s has no %q", e.file, e.behind)
				}
				write(t, path, before+e.behind+e.text+after)
			}
			run(t, tree, "gofmt", "-w", "mempool", "radixcache", "scheduler", "server")
			run(t, tree, "go", append([]string{"test"}, r.tests...)...)
			run(t, tree, "go", "test", "./internal/lint")
		})
	}
}

// copyTree copies the module without its history and returns the copy's root.
func copyTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, file := range everyFile(t) {
		from, to := filepath.Join("..", "..", file), filepath.Join(root, file)
		st, err := os.Lstat(from)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case st.IsDir():
			err = os.MkdirAll(to, 0o755)
		case st.Mode().IsRegular():
			var text []byte
			if text, err = os.ReadFile(from); err == nil {
				write(t, to, string(text))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out)
	}
}
