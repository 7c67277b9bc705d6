package coppice_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-llm/coppice/events/card"
)

// program returns the body of a function in a file of this directory.
func program(t *testing.T, file, function string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "\nfunc "+function+"() {\n")
	body, _, closed := strings.Cut(rest, "\n}\n")
	if !ok || !closed {
		t.Fatalf("%s has no function %s", file, function)
	}
	return body
}

// printed returns the output of f. When the first line is printed, it calls the function at
// with that line.
func printed(t *testing.T, f func(), at func(line string)) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	text := make(chan string)
	go func() {
		in := bufio.NewReader(r)
		first, _ := in.ReadString('\n')
		if at != nil {
			at(first)
		}
		rest, _ := io.ReadAll(in)
		text <- first + string(rest)
	}()
	f()
	w.Close()
	return <-text
}

// speaking runs f with the embedded model in the place of the generated one.
func speaking(t *testing.T, f func()) {
	t.Helper()
	aside := nano + ".aside"
	if err := errors.Join(os.Rename(nano, aside), os.Symlink(filepath.Join(root, "cmd/internal/speak/speak.gguf"), nano)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(os.Remove(nano), os.Rename(aside, nano)); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// visit returns a function for printed: it fetches the card of the worker that the program
// starts, and then interrupts the program.
func visit(t *testing.T) func(line string) {
	return func(line string) {
		defer func() {
			if p, err := os.FindProcess(os.Getpid()); err != nil || p.Signal(os.Interrupt) != nil {
				t.Error("the program can't be interrupted")
			}
		}()
		resp, err := http.Get(regexp.MustCompile(`http://\S+`).FindString(line) + card.Path)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		var c card.Card
		if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || c.Models[0] != "mine" || c.ZMQ == nil || c.ZMQ.Port == 0 || c.BlockTokens == 0 {
			t.Errorf("%+v, %v", c, err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// TestEmbedding runs the programs of README and docs/embedding.md. Both pages show Example word
// for word; docs/embedding.md shows Example_fleet too, docs/sessions.md Example_agent, and README lines of Example_server.
func TestEmbedding(t *testing.T) {
	for _, tc := range []struct {
		file, function string
		lines          int
		run            func()
		at             func(line string)
		want           string
		docs           []string
	}{
		{"example_test.go", "Example", 14, Example, nil, `(?s) <nil>\n.* \d of 7 prompt tokens cached\n.* \d of 7 prompt tokens cached\n<nil>\n$`,
			[]string{"README.md", "docs/embedding.md"}},
		{"example_fleet_test.go", "Example_fleet", 25, Example_fleet, visit(t), `^worker \S+ at http://127.0.0.1:\d+ publishes its cache in blocks of \d+ tokens\nevents at tcp://`,
			[]string{"docs/embedding.md"}},
		{"example_agent_test.go", "Example_agent", 40, func() { speaking(t, Example_agent) }, nil, `(?s)^(the lamp burns: (true|false)\n|an adviser: [1-9]\d* tokens cached <nil>\n)+the answer: .* <nil>\n$`,
			[]string{"docs/sessions.md"}},
	} {
		body := program(t, tc.file, tc.function)
		if n := strings.Count(body, "\n") + 1; n > tc.lines {
			t.Errorf("%s has %d lines, want %d", tc.function, n, tc.lines)
		}
		for _, doc := range tc.docs {
			text, err := os.ReadFile(filepath.Join(root, doc))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "func main() {\n"+body+"\n}\n```") {
				t.Errorf("%s does not show the body of %s as func main", doc, tc.function)
			}
		}
		if text := printed(t, tc.run, tc.at); !regexp.MustCompile(tc.want).MatchString(text) {
			t.Errorf("%s prints %q, want %s", tc.function, text, tc.want)
		}
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, mux, _ := strings.Cut(string(readme), "(`Example_server`):\n\n```go\n")
	mux, _, ok := strings.Cut(mux, "```")
	if !ok {
		t.Error("README.md does not show Example_server")
	}
	handler := program(t, "example_test.go", "Example_server")
	for line := range strings.Lines(mux) {
		if !strings.Contains(handler, "\t"+line) {
			t.Errorf("README.md shows %q, which Example_server does not do", line)
		}
	}
}
