package speculate

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// files has the loads of this package. tools/speculate/loads.py has written them.
//
//go:embed loads/*.jsonl
var files embed.FS

// Load is a list of tasks that are played together.
type Load struct {
	Name     string
	Parallel int // tasks that run at a time
	Tasks    []Task
}

// Task is a prompt and the output that it asks for.
type Task struct {
	Name     string         `json:"name"`
	Messages []chat.Message `json:"messages"` // of a chat; or else
	Prompt   string         `json:"prompt"`   // a text to continue
	Output   string         `json:"output"`
	// Schema is the JSON schema that the output satisfies; absent for any text.
	Schema json.RawMessage `json:"schema"`
}

// parallel has the loads of this package, and how many tasks of each run at a time.
var parallel = map[string]int{"rewrite": 1, "records": 1, "calls": 1, "chat": 1, "streams": 16}

// names are the names of this package's loads: a source file written again with a small change,
// records with recurring keys, calls of tools under a schema, chats, and sixteen streams of
// all of these at a time.
func names() []string { return []string{"rewrite", "records", "calls", "chat", "streams"} }

// Open returns the load of this name, or reads the file of this name if it ends in .jsonl. Tasks of
// a file run one at a time.
func Open(name string) (*Load, error) {
	if !strings.HasSuffix(name, ".jsonl") {
		data, err := files.ReadFile("loads/" + name + ".jsonl")
		if err != nil {
			return nil, fmt.Errorf("speculate: there is no load %q, want %s or a .jsonl file", name, strings.Join(names(), ", "))
		}
		return read(name, parallel[name], bytes.NewReader(data))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("speculate: give a file of tasks, an object of JSON a line, or a load by name (%s): %w", strings.Join(names(), ", "), err)
	}
	defer f.Close()
	return read(name, 1, f)
}

// maxLine limits a line of a load, a task, in bytes.
const maxLine = 16 << 20

// taskForm says in errors what a line of a load has.
const taskForm = "a name, an output, and either messages or a prompt"

// read reads a load: a JSON object a line.
func read(name string, parallel int, r io.Reader) (*Load, error) {
	l := &Load{Name: name, Parallel: parallel}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var t Task
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&t); err != nil {
			return nil, fmt.Errorf("speculate: %s, line %d: %w; a line is an object of JSON with %s", name, n, err, taskForm)
		}
		if t.Name == "" || t.Output == "" || (t.Prompt == "") == (len(t.Messages) == 0) {
			return nil, fmt.Errorf("speculate: %s, line %d: a task has %s", name, n, taskForm)
		}
		l.Tasks = append(l.Tasks, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("speculate: %s: %w", name, err)
	}
	if len(l.Tasks) == 0 {
		return nil, fmt.Errorf("speculate: %s has no tasks; each line is an object of JSON with %s", name, taskForm)
	}
	return l, nil
}
