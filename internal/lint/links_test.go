package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ (.*)`)
	code    = regexp.MustCompile("`[^`\n]*`")
)

// TestLinks follows the relative links of every .md file: the file exists, and has the heading
// that an anchor names. Links to other hosts are not followed.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	exist, pages := map[string]bool{}, map[string]string{}
	for _, file := range everyFile(t) {
		exist[file] = true
		if path.Ext(file) == ".md" {
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
			if err != nil {
				t.Fatal(err)
			}
			pages[file] = withoutFences(string(text))
		}
	}
	for file, text := range pages {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			page := file
			if target != "" {
				page = path.Join(path.Dir(file), target)
			}
			if !exist[page] {
				t.Errorf("%s links to %s, which does not exist", file, target)
			} else if anchor != "" && !anchors(pages[page])[anchor] {
				t.Errorf("%s links to %s: %s has no such heading", file, m[1], page)
			}
		}
	}
}

// withoutFences returns a page whose fenced blocks of code are blank lines.
func withoutFences(text string) string {
	var kept strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			line = "\n"
		} else if fenced {
			line = "\n"
		}
		kept.WriteString(line)
	}
	return kept.String()
}

// anchors returns the headings of a page as GitHub names them: "The `-x` flag" is the-x-flag.
func anchors(page string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(page) {
		if m := heading.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			names[strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, m[1])] = true
		}
	}
	return names
}
