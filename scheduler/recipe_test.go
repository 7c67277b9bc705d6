package scheduler

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var followRecipe = flag.Bool("recipe", false, "TestRecipe: run the tests of the copy, half a minute")

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

// others are further policies in the order of the recipe's, which promise other things: hasty preempts,
// and the last two don't keep what they promise.
const others = `package scheduler

import "github.com/coppice-llm/coppice/scheduler/internal/accounts"

const (
	Hasty Policy = NEXT + iota
	Partial
	Endless
)

func bySJF(*Config, *accounts.Accounts) ordering { return sjfOrdering{} }

var (
	hasty   = policy{name: "hasty", byCache: true, starves: true, preempts: true, order: bySJF}
	partial = policy{name: "partial", byCache: true, byTenant: true, fair: true, order: bySJF}
	endless = policy{name: "endless", byCache: true, order: bySJF}
)
`

// worldsTest is a test of these policies within package schedtest.
const worldsTest = `package schedtest

import (
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/scheduler"
)

type drawn struct {
	noBug
	policy scheduler.Policy
	world  func(*setup)
}

func (d drawn) setup(w *setup) {
	d.world(w)
	w.cfg.Policy = d.policy
}

func TestRecipeWorlds(t *testing.T) {
	for _, c := range []struct {
		policy  scheduler.Policy
		fair    bool
		world   func(*setup)
		checker string // that finds a broken promise
	}{
		{scheduler.SJF, false, (*setup).starve, ""},
		{scheduler.Hasty, false, (*setup).contend, ""},
		{scheduler.Partial, true, func(w *setup) { w.cfg.Quantum = 1 }, "shares"},
		{scheduler.Endless, false, (*setup).starve, "progress"},
	} {
		found := ""
		var sum Report
		for seed := uint64(1); seed <= 8 && found == ""; seed++ {
			r, err := Run(Options{Seed: seed, Steps: 300, Fair: c.fair, plant: func() bug { return drawn{policy: c.policy, world: c.world} }})
			sum.add(&r)
			if f := (*Failure)(nil); errors.As(err, &f) {
				found = f.Checker
			}
			if err != nil && found != c.checker {
				t.Errorf("%v: %v", c.policy, err)
			}
		}
		if found != c.checker {
			t.Errorf("%v: found by %q, want %q", c.policy, found, c.checker)
		}
		if c.policy == scheduler.Hasty && sum.Preemptions == 0 {
			t.Error("nothing is preempted")
		}
	}
}
`

// TestRecipe applies the recipe of CONTRIBUTING.md for a queue policy to a copy of this package: the
// file that the recipe shows, and the entry that it names. The policy must have its name everywhere,
// and pass the tests that all policies pass. The worlds of package schedtest must check what it
// promises, and find others that break their promises. Without -recipe the copy is only vetted, tests too.
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
	own, next := entry[1]+"\n", len(policies)
	if _, err := os.Stat("sjf.go"); err == nil { // someone has followed the recipe to the letter
		own, code[1] = "", "package scheduler\n"
	} else {
		code[1] = regexp.MustCompile(`Policy = \d+`).ReplaceAllString(code[1], fmt.Sprint("Policy = ", next)) // the next number after those of the tree
		next++
	}
	dir, replace := t.TempDir(), map[string]string{}
	for name, content := range map[string]string{
		"recipe_sjf.go": code[1], "sjf_test.go": recipeTest, "others.go": strings.Replace(others, "NEXT", fmt.Sprint(next), 1), "schedtest/recipe_test.go": worldsTest,
		"policy.go": strings.Replace(string(list), head, head+own+"Hasty: hasty, Partial: partial, Endless: endless,\n", 1),
	} {
		at, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[at] = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
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
	args := []string{"test", "-overlay", file, "-vet=off", "-count=1", "-run", "^(TestRecipePolicy|TestNothingIsComputedTwice|TestTinyPool|TestWhy.*|TestRecipeWorlds)$", "-v", ".", "./schedtest"}
	if !*followRecipe {
		args = []string{"vet", "-overlay", file, ".", "./schedtest"}
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil || *followRecipe && (!strings.Contains(string(out), "--- PASS: TestRecipePolicy") || !strings.Contains(string(out), "--- PASS: TestRecipeWorlds")) {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
