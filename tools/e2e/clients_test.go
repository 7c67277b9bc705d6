package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/engine/model/random"
)

var (
	clientModel   = flag.String("client-model", "demo", "with -client-results: models to run the clients on, of demo, smollm2 and coder, separated by commas")
	clientWebUI   = flag.String("client-webui", "", "with -client-results: environment (venv) with Open WebUI, to run it too")
	clientResults = flag.String("client-results", "", "TestClients: run all clients, also those that install.py installs with \"more\". This file keeps the results, case by case, and continues a run")
)

// columns lists the cases of each client, in the order of the table.
var columns = []string{"text", "stream", "tools", "structured", "second turn", "third turn", "usage"}

// roster lists the clients in the order of the table. Those of more run with -client-results alone.
var roster = []struct {
	client, language string
	without          string // columns for which it has no feature
	more             bool
}{
	{client: "openai", language: "Python"},
	{client: "litellm", language: "Python"},
	{client: "langchain-openai", language: "Python"},
	{client: "instructor", language: "Python"},
	{client: "pydantic-ai", language: "Python"},
	{client: "openai-agents", language: "Python"},
	{client: "llm", language: "Python"},
	{client: "lm-eval", language: "Python", without: "stream, tools, structured, second turn, third turn, usage"},
	{client: "openai", language: "JavaScript"},
	{client: "ai", language: "JavaScript"},
	{client: "openai-go", language: "Go"},
	{client: "openai-responses", language: "Python"},
	{client: "litellm-responses", language: "Python"},
	{client: "pydantic-ai-responses", language: "Python"},
	{client: "openai-agents-responses", language: "Python"},
	{client: "ai-openai", language: "JavaScript"},
	{client: "openai-responses", language: "JavaScript"},
	{client: "anthropic", language: "Python"},
	{client: "litellm-anthropic", language: "Python"},
	{client: "langchain-anthropic", language: "Python"},
	{client: "pydantic-ai-anthropic", language: "Python"},
	{client: "anthropic", language: "JavaScript"},
	{client: "ai-anthropic", language: "JavaScript"},
	{client: "ollama", language: "Python"},
	{client: "langchain-ollama", language: "Python"},
	{client: "litellm-ollama", language: "Python"},
	{client: "ollama", language: "JavaScript"},
	{client: "open-webui", language: "Python", without: "structured", more: true},
	{client: "open-webui-ollama", language: "Python", without: "structured", more: true},
	{client: "langgraph", language: "Python", more: true},
	{client: "llama-index", language: "Python", more: true},
	{client: "smolagents", language: "Python", more: true},
	{client: "dspy", language: "Python", more: true},
	{client: "guidance", language: "Python", more: true},
	{client: "mirascope", language: "Python", more: true},
}

// clientModels are the models that the clients run on. A real model is a file in the directory that
// COPPICE_MODELS names; tools/models/fetch.py fills one.
var clientModels = []struct{ name, title, file string }{
	{"demo", "demo", ""},
	{"smollm2", "SmolLM2-135M-Instruct (Q4_1)", "smollm2-135m-instruct-q4_1.gguf"},
	{"coder", "Qwen2.5-Coder-1.5B-Instruct (Q4_K_M)", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"},
}

// clientResult is the result of one case: a line of cases.py or clients.mjs, and of -client-results.
type clientResult struct {
	Model    string  `json:"model"` // of clientModels
	Client   string  `json:"client"`
	Language string  `json:"language"`
	Version  string  `json:"version"`
	Case     string  `json:"case"`  // of columns
	Cell     string  `json:"cell"`  // "yes", "offered", "–", or "fault"
	Valid    bool    `json:"valid"` // no HTTP error, no exception of the client, and an answer of the right form
	Sensible bool    `json:"sensible"`
	Seconds  float64 `json:"seconds,omitempty"`
	Got      string  `json:"got,omitempty"`
}

// slug returns the client's name in URLs.
func slug(client, language string) string {
	if language == "JavaScript" {
		return client + "-js"
	}
	return client
}

// TestClients runs published clients, each with its defaults and three turns, and compares the
// results with the table in docs/clients.md. By default the model is a generated one, whose answers
// need only be valid. With -client-results, all clients run on the models of -client-model.
func TestClients(t *testing.T) {
	if *clientsFlag == "" {
		t.Skip("needs -clients DIR, as clients/install.py makes it")
	}
	dir, err := filepath.Abs(*clientsFlag)
	if err != nil {
		t.Fatal(err)
	}
	b := openBook(t, *clientResults)
	models := []string{"demo"}
	if b.path != "" {
		models = strings.Split(*clientModel, ",")
	}
	for _, name := range models {
		b.run(t, name, dir)
	}
	features, byModel := b.features(), b.byModel()
	t.Logf("\n%s\n%s", features, byModel)
	switch {
	case *updateFlag:
		if missing := b.missing(); len(missing) > 0 {
			t.Fatalf("-update needs -client-results with the results of all clients on all models; %d are missing: %.300v", len(missing), missing)
		}
		writeTables(t, features, byModel)
	case b.path == "":
		holdRows(t, features)
	}
	for _, r := range b.results {
		if slices.Contains(models, r.Model) {
			b.hold(t, r)
		}
	}
}

// book has the results so far, and its file.
type book struct {
	path    string
	file    *os.File
	results []clientResult
}

// openBook reads the results of an earlier run. A path of "" keeps none.
func openBook(t *testing.T, path string) *book {
	b := &book{path: path}
	if path == "" {
		return b
	}
	held, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(held) {
		var r clientResult
		if json.Unmarshal(line, &r) == nil { // not a line that was cut off
			b.results = append(b.results, r)
		}
	}
	if b.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.file.Close() })
	if len(held) > 0 && held[len(held)-1] != '\n' {
		b.file.WriteString("\n")
	}
	return b
}

// add keeps a result.
func (b *book) add(t *testing.T, r clientResult) {
	t.Helper()
	b.results = append(b.results, r)
	if b.file == nil {
		return
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = b.file.Write(append(line, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b *book) find(model, client, language, column string) (clientResult, bool) {
	i := slices.IndexFunc(b.results, func(r clientResult) bool {
		return r.Model == model && r.Client == client && r.Language == language && r.Case == column
	})
	if i < 0 {
		return clientResult{}, false
	}
	return b.results[i], true
}

// missing lists the cases without a result.
func (b *book) missing() (out []string) {
	for _, m := range clientModels {
		for _, c := range roster {
			for _, column := range columns {
				if _, ok := b.find(m.name, c.client, c.language, column); !ok {
					out = append(out, m.name+"/"+slug(c.client, c.language)+"/"+column)
				}
			}
		}
	}
	return out
}

// run runs the cases on a model that have no result yet.
func (b *book) run(t *testing.T, name, dir string) {
	t.Helper()
	i := slices.IndexFunc(clientModels, func(m struct{ name, title, file string }) bool { return m.name == name })
	if i < 0 {
		t.Fatalf("-client-model %s: it is one of demo, smollm2, coder", name)
	}
	demo := filepath.Join(t.TempDir(), "demo")
	if err := random.Generate(demo, random.Spec{Preset: random.Demo, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	flags, served, tries := []string{"--default-max-tokens", "600", "--ping-interval", "1ms", "--model", demo}, "demo", "3" // pings in every stream: clients must bear them
	if file := clientModels[i].file; file != "" {
		path := filepath.Join(os.Getenv("COPPICE_MODELS"), file)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v; tools/models/fetch.py DIR all fetches it, and COPPICE_MODELS=DIR names the directory", err)
		}
		served, tries = strings.TrimSuffix(file, ".gguf"), "0"
		flags = []string{"--default-max-tokens", "256", "--model", path}
	}
	var skip []string
	for _, c := range roster {
		for _, column := range columns {
			if _, ok := b.find(name, c.client, c.language, column); ok {
				skip = append(skip, slug(c.client, c.language)+"/"+column)
			}
		}
	}
	p := launch(t, http.DefaultClient, []string{"serve"}, flags)
	w := newWire(t, p.url, clientModels[i].file != "")
	take := func(r clientResult) {
		r.Model = name
		if errors := w.errors(slug(r.Client, r.Language), r.Case); errors != "" {
			r.Valid, r.Sensible, r.Cell, r.Got = false, false, "fault", errors+"; "+r.Got
		}
		b.add(t, r)
	}
	python := func(script string, env ...string) {
		args := []string{"clients/" + script, "--url", w.url, "--model", served, "--skip", strings.Join(skip, ",")}
		if tries != "0" {
			args = append(args, "--retry")
		}
		runClients(t, exec.Command(filepath.Join(append(env, "bin/python")...), args...), take)
	}
	python("clients.py", dir, "py")
	python("responses.py", dir, "py")
	python("messages.py", dir, "py")
	python("ollamas.py", dir, "py")
	runClients(t, exec.Command("node", "clients/clients.mjs", filepath.Join(dir, "js"), w.url, served, tries, strings.Join(skip, ",")), take)
	if b.path != "" {
		python("more.py", dir, "more")
	}
	if *clientWebUI != "" {
		python("openwebui.py", *clientWebUI)
	}
	for _, r := range openaiGo(t, w.url, served, tries == "3", skip) {
		take(r)
	}
	p.quiet(p.client)
}

// runClients runs a script and takes its lines as they come.
func runClients(t *testing.T, cmd *exec.Cmd, take func(clientResult)) {
	t.Helper()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	cmd.Env = append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True") // it would fetch prices
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	var strange []string
	for lines.Scan() {
		var r clientResult
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Case == "" {
			strange = append(strange, lines.Text())
			continue
		}
		take(r)
	}
	if err := cmp.Or(cmd.Wait(), lines.Err()); err != nil || len(strange) > 0 {
		t.Fatalf("%v: %v\nit printed %q\n%s", cmd, err, strange, complaints.String())
	}
}

// hold reports a result that is a fault, and a feature that a client should have.
func (b *book) hold(t *testing.T, r clientResult) {
	t.Helper()
	if !r.Valid {
		t.Errorf("%s: %s (%s) %s, %s: %s", r.Model, r.Client, r.Language, r.Version, r.Case, r.Got)
	}
	for _, c := range roster {
		if c.client == r.Client && c.language == r.Language && (r.Cell == "–") != strings.Contains(c.without, r.Case) {
			t.Errorf("%s (%s) %s: column %q is %s", r.Client, r.Language, r.Version, r.Case, r.Cell)
		}
	}
}
