package speak

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	coppice "github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// TestSpeaks: the file is small, and the answers to questions are made of words of the Opticks. A model of
// random weights writes almost none.
func TestSpeaks(t *testing.T) {
	if len(file) > 4<<20 {
		t.Errorf("the file has %d bytes, more than 4 MiB", len(file))
	}
	known := opticks(t)
	path, remove, err := Write()
	if err != nil {
		t.Fatal(err)
	}
	m, err := local.Open(path, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	words, in := 0, 0
	for _, question := range []string{"What is light?", "Tell me of the prism.", "Why is the sky blue?", "What is a colour?"} {
		req := coppice.Request{MaxTokens: 120, Sampling: m.Sampling}
		req.Sampling.Seed = 1
		answer, err := m.Chat(context.Background(), []chat.Message{{Role: "user", Content: question}}, coppice.ChatOptions{Request: req})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s", question, answer.Text)
		for _, w := range split(answer.Text) {
			if words++; known[w] {
				in++
			}
		}
	}
	if words < 100 || in < words*9/10 {
		t.Errorf("%d of %d words are in the Opticks, want nine of ten of at least a hundred", in, words)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	remove()
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("the directory of %s is left: %v", path, err)
	}
}

// opticks returns the words of the book, which Go's source tree has.
func opticks(t *testing.T) map[string]bool {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src/testdata/Isaac.Newton-Opticks.txt"))
	if err != nil {
		t.Skip(err) // a distribution's Go may lack it
	}
	known := make(map[string]bool)
	for _, w := range split(string(text)) {
		known[w] = true
	}
	return known
}

// split returns the words of text in lower case.
func split(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) })
}
