package coppice_test

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program is the body of a function in a file of this directory.
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

// printed is what f prints.
func printed(t *testing.T, f func()) string {
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
		data, _ := io.ReadAll(r)
		text <- string(data)
	}()
	f()
	w.Close()
	return <-text
}

// TestEmbedding: the programs that README and docs/embedding.md show run, and stand there word
// for word.
func TestEmbedding(t *testing.T) {
	for _, tc := range []struct {
		file, function string
		lines          int
		run            func()
		want           string
	}{
		{"example_test.go", "Example", 15, Example, `(?s) <nil>\n.* \d of 7 prompt tokens cached\n.* \d of 7 prompt tokens cached\n<nil> requests: 3 accepted.* 0 leaked`},
	} {
		body := program(t, tc.file, tc.function)
		if n := strings.Count(body, "\n") + 1; n > tc.lines {
			t.Errorf("%s has %d lines, want %d", tc.function, n, tc.lines)
		}
		for _, doc := range []string{"README.md", "docs/embedding.md"} {
			text, err := os.ReadFile(filepath.Join(root, doc))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "func main() {\n"+body+"\n}\n```") {
				t.Errorf("%s does not show the body of %s as func main", doc, tc.function)
			}
		}
		if text := printed(t, tc.run); !regexp.MustCompile(tc.want).MatchString(text) {
			t.Errorf("%s prints %q, want %s", tc.function, text, tc.want)
		}
	}
}
