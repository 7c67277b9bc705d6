package scheduler

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// recipeTest is the test of the recipe's policy. It runs within this package, with the policy in it.
const recipeTest = `package scheduler

import (
	"slices"
	"testing"
)

func TestRecipePolicy(t *testing.T) {
	var p Policy
	if err := p.UnmarshalText([]byte("sjf")); err != nil || p != SJF || p.String() != "sjf" || p.About() != "sjf (shortest job first)" || !slices.Contains(Policies(), p) {
		t.Fatalf("%v, %v", p, err)
	}
	b := newBed(t, Config{Policy: p, MaxRunning: 1}, 4, 100)
	for id, n := range []int{40, 10, 30, 20} {
		b.request(Request{ID: RequestID(id), Prompt: append(seq(id, 1), seq(50, n)...), MaxTokens: 1})
	}
	if got := b.order(); got != "1 3 2 0" {
		t.Errorf("order %s", got)
	}
}
`

// TestRecipe applies the recipe of CONTRIBUTING.md for a queue policy to a copy of this package: the
// file that the recipe shows, and the entry that it names. The policy must have its name everywhere,
// and pass the tests that all policies pass.
func TestRecipe(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, found := strings.Cut(string(text), "## Recipe: a queue policy\n")
	recipe, _, _ = strings.Cut(recipe, "\n## ")
	code := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(recipe)
	entry := regexp.MustCompile("Add `(.*?)` to `policies`").FindStringSubmatch(recipe)
	if !found || code == nil || entry == nil {
		t.Fatal("CONTRIBUTING.md has no recipe of a queue policy with a file and an entry")
	}
	list, err := os.ReadFile("policy.go")
	if err != nil {
		t.Fatal(err)
	}
	const head = "var policies = [...]policy{\n"
	if !strings.Contains(string(list), head) {
		t.Fatal("policy.go has no list of policies")
	}
	dir, replace := t.TempDir(), map[string]string{}
	for name, content := range map[string]string{
		"sjf.go": code[1], "sjf_test.go": recipeTest,
		"policy.go": strings.Replace(string(list), head, head+entry[1]+"\n", 1),
	} {
		at, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[at] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[at], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-overlay", file, "-count=1", "-run", "^(TestRecipePolicy|TestNothingIsComputedTwice|TestTinyPool|TestWhy.*)$", "-v", "."}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRecipePolicy") {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
