package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/cmd/internal/complete"
)

// completed returns the candidates for a line, as the scripts get them.
func completed(t *testing.T, words ...string) (found []string, files bool) {
	t.Helper()
	app := kong.Must(&cli{}, append(valueMappers(), kong.Name("coppice"), vars)...)
	all, files := complete.Words(app.Model, words, valuesFor)
	for _, c := range all {
		found = append(found, c.Word)
	}
	return found, files
}

func TestCompletion(t *testing.T) {
	for _, tc := range []struct {
		words string // separated by blanks; a blank at the end: the last word is empty
		want  string // candidates; "…" at the end: and others
		files bool
	}{
		{"ser", "serve", false},
		{"bench s", "sched serving sessions serve speculate", false},
		{"serve --polic", "--policy", false},
		{"serve --policy dl", "dlpm", false},
		{"serve --policy=dl", "--policy=dlpm", false},
		{"serve --kv-type q", "q8_0", false},
		{"serve --kv-tokens 5 --policy l", "lpm lof", false},
		{"serve --no-pag", "--no-page", false},
		{"serve --nope=", "", false},
		{"sim --see", "--seeds --seed", false}, // of its default command
		{"gpucheck --backend ", "cuda ptxvm", false},
		{"generate --model ./", "", true},
		{"completion ", "bash zsh fish", false},
		{"version ", "", false},
		{"nosuch ", "", false},
	} {
		found, files := completed(t, strings.Split(tc.words, " ")...)
		slices.Sort(found)
		want := strings.Fields(tc.want)
		slices.Sort(want)
		if tc.words == "nosuch " {
			continue // an unknown word is an argument: no panic is all that counts
		}
		if !slices.Equal(found, want) || files != tc.files {
			t.Errorf("%q: %q, files %v; want %q, %v", tc.words, found, files, want, tc.files)
		}
	}
	if found, _ := completed(t); !slices.Contains(found, "serve") || !slices.Contains(found, "run") {
		t.Errorf("without a word: %q", found)
	}
}

// TestCompletionScripts lets the shells that are installed complete lines by their scripts, with this test as the
// program.
func TestCompletionScripts(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a-file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	program := "#!/bin/sh\nCOPPICE_TEST_MAIN=1 exec " + os.Args[0] + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "coppice"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	ask := map[string]string{
		"bash": `source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; read -ra COMP_WORDS <<<"$2"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _coppice; printf '%s\n' "${COMPREPLY[@]}"`,
		"fish": `source $argv[1]; complete -C $argv[2] | string split -f1 \t; true`,
		// zsh completes only in its line editor; this takes what the script gives to it.
		"zsh": `compdef() { }; _describe() { print -l -- ${${(P)2}%%:*} }; _files() { print -l *(.) }; source "$1"; words=(${=2}); CURRENT=${#words}; _coppice`,
	}
	for _, shell := range complete.Shells() {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed", shell)
			continue
		}
		text, stderr, ok := command(t, "completion", shell)
		if !ok {
			t.Fatal(stderr)
		}
		script := filepath.Join(dir, "script."+shell)
		if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string]string{"coppice serve --policy dl": "dlpm", "coppice gener": "generate", "coppice generate --model a-f": "a-file", "coppice serve --kv-type=q": "q8_0"} {
			args := []string{"-c", ask[shell], "x", script, line}
			if shell == "fish" {
				args = slices.Delete(args, 2, 3)
			}
			cmd := exec.Command(path, args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			got := strings.Fields(string(out))
			if err != nil || !slices.ContainsFunc(got, func(s string) bool { return strings.TrimPrefix(s, "--kv-type=") == want }) {
				t.Errorf("%s: %q: %q, %v; want %s", shell, line, out, err, want)
			}
		}
	}
	refused(t, []string{"bash", "zsh", "fish"}, "completion", "tcsh")
}

// TestManPages checks that each command has a page, that twice the same is written, and that the pages are without
// faults where mandoc is installed.
func TestManPages(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "man1"), filepath.Join(t.TempDir(), "man1")
	for _, dir := range []string{one, two} {
		if _, stderr, ok := command(t, "man", dir); !ok {
			t.Fatal(stderr)
		}
	}
	refused(t, []string{"name a directory"}, "man", filepath.Join(os.DevNull, "man1"))
	pages, err := filepath.Glob(filepath.Join(one, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	app := kong.Must(&cli{}, append(valueMappers(), vars)...)
	if want := 1 + len(app.Model.Leaves(true)); len(pages) != want {
		t.Errorf("%d pages, want %d", len(pages), want)
	}
	for _, p := range pages {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if twin, err := os.ReadFile(filepath.Join(two, filepath.Base(p))); err != nil || string(twin) != string(text) {
			t.Errorf("%s differs when written again: %v", filepath.Base(p), err)
		}
	}
	text, err := os.ReadFile(filepath.Join(one, "coppice-serve.1"))
	for _, want := range []string{`.B \-\-kv\-tokens=`, "COPPICE_KV_TOKENS", ".SH EXAMPLES", `\-\-[no\-]page`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the page of serve has no %q: %v", want, err)
		}
	}
	if _, err := exec.LookPath("mandoc"); err == nil {
		if out, err := exec.Command("mandoc", append([]string{"-T", "lint", "-W", "error"}, pages...)...).CombinedOutput(); err != nil {
			t.Errorf("%v: %.2000s", err, out)
		}
	}
}
