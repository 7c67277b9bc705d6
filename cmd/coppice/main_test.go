package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/cmd/internal/manpage"
)

// TestMain lets the test binary be the command: a child process with the
// variable set runs main. With natsVariable it is a NATS server.
func TestMain(m *testing.M) {
	if at := os.Getenv(natsVariable); at != "" {
		if err := serveNATS(at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("COPPICE_TEST_MAIN") != "" {
		if err := joinGroup(os.Getenv(groupVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		main()
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

// groupVariable is an environment variable with the directory of a control group, which a child
// process joins before it runs main.
const groupVariable = "FLEET_TEST_CGROUP"

func joinGroup(dir string) error {
	if dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
}

// runTests isolates tests from the models, tokens and hub settings of this machine, and runs
// more parallel tests than there are processors, as they mostly wait for processes.
func runTests(m *testing.M) int {
	flag.Parse()
	if n := flag.Lookup("test.parallel"); n.Value.String() == n.DefValue {
		n.Value.Set("6")
	}
	home, err := os.MkdirTemp("", "coppice-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(home)
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		os.Unsetenv(name)
	}
	os.Setenv("HF_HOME", home)
	os.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	return m.Run()
}

// command runs coppice and returns what it printed and whether it succeeded.
func command(t *testing.T, args ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "COPPICE_TEST_MAIN=1", "GOGC=400") // it runs for a moment
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return out.String(), errs.String(), err == nil
}

func nano(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "nano")
	if _, stderr, ok := command(t, "make-model", dir, "--preset", "nano"); !ok {
		t.Fatal(stderr)
	}
	return dir
}

func TestGenerate(t *testing.T) {
	dir := nano(t)
	args := []string{"generate", "--model", dir, "--max-tokens", "20", "--temperature", "1", "--seed", "3", "--stats", "What is light?"}
	first, stderr, ok := command(t, args...)
	if !ok || len(first) < 10 || !strings.Contains(stderr, "20 output tokens") || !strings.Contains(stderr, "pages:") {
		t.Fatalf("ok %v, printed %q and %q", ok, first, stderr)
	}
	if again, _, _ := command(t, args...); again != first {
		t.Errorf("the same seed gave %q and %q", first, again)
	}
}

func TestBenchChatJSON(t *testing.T) {
	args := []string{"bench", "chat", "--json", "--model", nano(t), "--requests", "9", "--turns", "3",
		"--systems", "1", "--system-bytes", "120", "--output-tokens", "4"}
	stdout, stderr, ok := command(t, append(args, "--clients", "3")...)
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	var got struct {
		On        map[string]float64 `json:"cache_on"`
		Off       map[string]float64 `json:"cache_off"`
		Identical bool               `json:"identical"`
		Digest    string             `json:"digest"`
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	on, off := got.On, got.Off
	if table, _, _ := command(t, append(args, "--clients", "1", "--page-tokens", "1", "--json=false")...); !strings.Contains(table, ": "+got.Digest+"\n") {
		t.Errorf("with one client and pages of one token the digest is not %q: %s", got.Digest, table)
	}
	if !got.Identical || on["requests"] != 9 || off["requests"] != 9 || on["leaked_pages"]+off["leaked_pages"] != 0 {
		t.Errorf("printed %s", stdout)
	}
	if on["computed_tokens"] != on["prompt_tokens"]-on["cached_tokens"] || off["computed_tokens"] != off["prompt_tokens"] {
		t.Errorf("computed tokens do not add up: %s", stdout)
	}
	if on["hit_rate"] < 0.98*on["ideal_hit_rate"] || on["hit_rate"] == 0 {
		t.Errorf("hit rate %v of an ideal of %v", on["hit_rate"], on["ideal_hit_rate"])
	}
}

// TestBenchChatPTX checks that the CUDA kernels, executed by the interpreter, give the same
// answers with and without the cache.
func TestBenchChatPTX(t *testing.T) {
	t.Parallel()
	stdout, stderr, ok := command(t, "bench", "chat", "--backend", "ptxvm", "--json", "--model", nano(t), "--requests", "2", "--turns", "2",
		"--systems", "1", "--system-bytes", "40", "--output-tokens", "2", "--clients", "1", "--kv-tokens", "2048")
	if !ok || stderr != "" {
		t.Fatalf("ok %v: %s", ok, stderr)
	}
	var got struct {
		On        map[string]float64 `json:"cache_on"`
		Identical bool               `json:"identical"`
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Identical || got.On["hit_rate"] == 0 || got.On["leaked_pages"] != 0 {
		t.Errorf("printed %s", stdout)
	}
}

// TestBadInput checks that every error message names the fault, and that no partial output
// is left.
func TestBadInput(t *testing.T) {
	dir := nano(t)
	// broken is a copy of the model with one file changed.
	broken := func(file string, change func([]byte) []byte) string {
		copied := filepath.Join(t.TempDir(), "model")
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(copied, file)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if data = change(data); data == nil {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return copied
	}
	remove := func([]byte) []byte { return nil }
	replace := func(old, new string) func([]byte) []byte {
		return func(data []byte) []byte {
			if !bytes.Contains(data, []byte(old)) {
				t.Fatalf("%q is not there to be replaced", old)
			}
			return bytes.ReplaceAll(data, []byte(old), []byte(new))
		}
	}
	generate := func(args ...string) []string { return append([]string{"generate"}, args...) }
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"no such model", generate("--model", filepath.Join(dir, "missing"), "x"), []string{"missing", "coppice models"}},
		{"no weights", generate("--model", broken("model.safetensors", remove), "x"), []string{"model.safetensors"}},
		{"truncated weights", generate("--model", broken("model.safetensors", func(b []byte) []byte { return b[:len(b)-100] }), "x"), []string{"model.safetensors", "bytes"}},
		{"unsupported architecture", generate("--model", broken("config.json", replace("LlamaForCausalLM", "MambaForCausalLM")), "x"), []string{"MambaForCausalLM", "LlamaForCausalLM"}},
		{"no tokenizer", generate("--model", broken("tokenizer.json", remove), "x"), []string{"tokenizer.json"}},
		{"tokenizer that does not fit", generate("--model", broken("config.json", replace(`"vocab_size": 320`, `"vocab_size": 100`)), "x"), []string{"100"}},
		{"empty prompt", generate("--model", dir, ""), []string{"empty prompt"}},
		{"prompt beyond the model", generate("--model", dir, strings.Repeat("light ", 3000)), []string{"too long", "4096"}},
		{"prompt beyond the pool", generate("--model", dir, "--kv-tokens", "64", strings.Repeat("light ", 50)), []string{"larger than the KV pool", "64"}},
		{"negative temperature", generate("--model", dir, "--temperature=-1", "x"), []string{"Temperature is -1"}},
		{"NaN temperature", generate("--model", dir, "--temperature", "NaN", "x"), []string{"Temperature is NaN"}},
		{"bad page size", generate("--model", dir, "--page-tokens", "3", "x"), []string{"PageTokens is 3", "power of two"}},
		{"bad policy", generate("--model", dir, "--policy", "best", "x"), []string{"best", "fcfs"}},
		{"bad step", generate("--model", dir, "--step-tokens=-4", "x"), []string{"--step-tokens is -4, want at least 1"}},
		{"unknown flag", generate("--nope", "x"), []string{"--nope"}},
		{"no command", nil, []string{"coppice --help"}},
		{"unknown preset", []string{"make-model", t.TempDir(), "--preset", "huge"}, []string{"huge", "nano"}},
		{"a place with another model", []string{"make-model", dir, "--preset", "nano", "--seed", "9"}, []string{dir}},
		{"no requests", []string{"bench", "chat", "--model", dir, "--requests=-3"}, []string{"--requests is -3"}},
		{"no bytes", []string{"bench", "chat", "--model", dir, "--system-bytes=-1"}, []string{"--system-bytes is -1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, tc.want, tc.args...)
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"generate", "--help"}, {"make-model", "--help"}, {"bench", "chat", "--help"}} {
		stdout, _, ok := command(t, args...)
		if !ok || !strings.Contains(stdout, "Usage: coppice") {
			t.Errorf("%v: ok %v, %q", args, ok, stdout)
		}
	}
}

// TestHelpFiles checks that every command has a help text with examples, that each example is of a
// command that exists, and that no text belongs to no command.
func TestHelpFiles(t *testing.T) {
	app := kong.Must(&cli{}, append(valueMappers(), vars)...)
	commands := []string{"coppice"}
	for _, n := range app.Model.Leaves(false) {
		commands = append(append(commands, manpage.CommandOf(n)), n.Aliases...)
	}
	example := regexp.MustCompile(`(?m)^  (?:[^-]*? )?coppice((?: [a-z]+(?:-[a-z]+)*)+)`)
	for _, n := range app.Model.Leaves(false) {
		c := manpage.CommandOf(n)
		found := example.FindAllStringSubmatch(helpOf(c), -1)
		if len(found) == 0 {
			t.Errorf("coppice %s has no example", c)
		}
		for _, m := range found {
			if !slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(m[1]+" ", " "+c+" ") || m[1] == " sim" }) {
				t.Errorf("coppice %s: %s", c, m[0])
			}
		}
	}
	if files, err := helpFiles.ReadDir("help"); err != nil || len(files) != 1+len(app.Model.Leaves(false)) {
		t.Errorf("%d texts for %d commands and the program: %v", len(files), len(app.Model.Leaves(false)), err)
	}
}

// refused runs coppice with args. The command must fail without a panic, and its message must
// contain all texts in want.
func refused(t *testing.T, want []string, args ...string) {
	t.Helper()
	stdout, stderr, ok := command(t, args...)
	if ok {
		t.Fatalf("succeeded and printed %q", stdout)
	}
	for _, w := range want {
		if !strings.Contains(stderr, w) && !strings.Contains(stdout, w) {
			t.Errorf("%q does not mention %q", stderr, w)
		}
	}
	if strings.Contains(stderr, "goroutine ") {
		t.Errorf("a panic: %s", stderr)
	}
}

// TestCommandLine checks that a bad command line gives one sentence and refers to the help,
// rather than printing all of it.
func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"serve --kv-tokns 5":      "coppice: unknown flag --kv-tokns, did you mean \"--kv-tokens\"?\nSee coppice serve --help.\n",
		"serve --kv-tokens x":     "coppice: --kv-tokens: \"x\" is not a whole number\nSee coppice serve --help.\n",
		"serve --kv-host -1GiB":   "coppice: --kv-host: \"-1GiB\" looks like a flag; if it is the value, write --kv-host=-1GiB\nSee coppice serve --help.\n",
		"analyze trace /no/trace": "coppice: can't read the trace: open /no/trace: no such file or directory\n",
		"serv":                    "coppice: unexpected argument serv, did you mean \"serve\"?\nSee coppice --help.\n",
	} {
		if stdout, stderr, ok := command(t, strings.Fields(args)...); ok || stdout != "" || stderr != want {
			t.Errorf("%s: ok %v, printed %q and %q", args, ok, stdout, stderr)
		}
	}
	for args, want := range map[string]string{"help": "Usage: coppice <command>", "help serve": "Usage: coppice serve", "version": "coppice ", "--version": "coppice "} {
		if stdout, stderr, ok := command(t, strings.Fields(args)...); !ok || !strings.HasPrefix(stdout, want) || stderr != "" {
			t.Errorf("%q: ok %v, printed %.60q and %q", args, ok, stdout, stderr)
		}
	}
}
