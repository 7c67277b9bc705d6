package lint

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var shrink = flag.Bool("shrink", false, "TestPlainEnglish lowers the counts of testdata/words.txt")

// riddles lists phrases that often make a sentence hard to read, each with the usual replacement.
var riddles = []struct{ phrase, better string }{
	{`tells? whether`, `"reports whether"`},
	{`who|whom|nobody|everybody|himself|herself`, "the noun: the caller, the worker, no request"},
	{`of (?:those|these|them),`, "the noun: the running sequences"},
	{`(?:is|are) to be`, `"must be", "should be"`},
	{`says? what`, `"describes", "explains"`},
	{`is what`, `the verb: "x does y", not "x is what does y"`},
	{`anew`, `"again"`},
	{`for good`, `"permanently"`},
	{`any more`, `"no longer", "again"`},
	{`so many`, `"n", "this many", "all"`},
	{`behind (?:it|them|those|another|the last)`, `"after" for order`},
}

// anyRiddle matches any of riddles; submatch i+1 belongs to riddles[i].
var anyRiddle = func() *regexp.Regexp {
	var phrases []string
	for _, r := range riddles {
		phrases = append(phrases, "("+r.phrase+")")
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(phrases, "|") + `)(?:\b|\s)`)
}()

// texts matches the names of the files that must have no riddle at all: all .md files, and prose in
// other formats.
var texts = regexp.MustCompile(`\.md$|^openai/.*\.json$|^gateway/.*\.json$|/page/.*\.js$|^cmd/coppice/help/`)

// TestPlainEnglish finds riddles in documents, comments and messages. Documents may have none.
// testdata/words.txt holds the number in the comments of each package and in its strings outside of
// tests; these numbers may only shrink:
//
//	go test ./internal/lint -run TestPlainEnglish -args -shrink
func TestPlainEnglish(t *testing.T) {
	for _, file := range everyFile(t) {
		if texts.MatchString(file) {
			text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
			if err != nil {
				t.Fatal(err)
			}
			prose := code.ReplaceAllString(withoutFences(string(text)), "")
			for n, line := range strings.Split(prose, "\n") {
				for _, hit := range riddlesIn(line) {
					t.Errorf("%s:%d: %s", file, n+1, hit)
				}
			}
		}
	}
	found := map[string][]string{}
	for _, s := range sources(t) {
		if s.pkg != "internal/lint" {
			found[s.pkg] = append(found[s.pkg], s.riddles()...)
		}
	}
	const list = "testdata/words.txt"
	known := readCounts(t, list)
	var out bytes.Buffer
	for _, pkg := range slices.Sorted(maps.Keys(found)) {
		hits := found[pkg]
		if len(hits) > known[pkg] {
			t.Errorf("%s has %d phrases of the list in %s, at most %d may be there. One of them must go:\n%s", pkg, len(hits), "internal/lint/words_test.go", known[pkg], strings.Join(hits, "\n"))
		}
		if n := min(len(hits), known[pkg]); n > 0 {
			fmt.Fprintln(&out, pkg, n)
		}
	}
	if *shrink {
		if err := os.WriteFile(list, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// riddles lists the phrases in the comments of a file and, outside of tests, in its strings.
func (s *source) riddles() []string {
	if ast.IsGenerated(s.file) {
		return nil
	}
	var hits []string
	add := func(at token.Pos, text string) {
		for _, hit := range riddlesIn(text) {
			hits = append(hits, fmt.Sprintf("%s:%d: %s", s.path, s.set.Position(at).Line, hit))
		}
	}
	for _, group := range s.file.Comments {
		add(group.Pos(), group.Text())
	}
	if !s.test {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				add(l.Pos(), l.Value)
			}
			return true
		})
	}
	return hits
}

// riddlesIn lists the phrases in a text, each with its replacement.
func riddlesIn(text string) []string {
	var hits []string
	for _, m := range anyRiddle.FindAllStringSubmatch(text, -1) {
		for i, found := range m[1:] {
			if found != "" {
				hits = append(hits, fmt.Sprintf("%q: write %s", found, riddles[i].better))
			}
		}
	}
	return hits
}

// readCounts reads a file with a package and a count on each line.
func readCounts(t *testing.T, file string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var pkg string
		var n int
		if _, err := fmt.Sscan(line, &pkg, &n); err != nil || path.Clean(pkg) != pkg {
			t.Fatalf("%s: %q: want a package and a count", file, line)
		}
		counts[pkg] = n
	}
	return counts
}
