package manpage

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// About holds the facts of a page that kong does not know.
type About struct {
	Version   string
	Date      string // as 2026-11-29; may be ""
	EnvPrefix string // of the environment variables that set flags
}

// Write makes dir if it is missing, and writes the pages of section 1: PROGRAM.1 and PROGRAM-COMMAND.1 for each command.
// The same program makes the same bytes.
func Write(dir string, app *kong.Application, about About) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pages := []*kong.Node{app.Node}
	for _, n := range app.Leaves(true) {
		pages = append(pages, n)
	}
	for _, n := range pages {
		name := filepath.Join(dir, nameOf(app, n)+".1")
		if err := os.WriteFile(name, []byte(page(app, n, about)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// CommandOf returns the names that lead to a command, such as "bench chat". Node.Path has its aliases as well.
func CommandOf(n *kong.Node) string {
	path, _, _ := strings.Cut(n.Path(), " (")
	return strings.TrimSpace(path)
}

// nameOf returns the name of a command's page: coppice-bench-chat.
func nameOf(app *kong.Application, n *kong.Node) string {
	if n == app.Node {
		return app.Name
	}
	return app.Name + "-" + strings.ReplaceAll(CommandOf(n), " ", "-")
}

func page(app *kong.Application, n *kong.Node, about About) string {
	var b strings.Builder
	name := nameOf(app, n)
	fmt.Fprintf(&b, ".TH %s 1 %q %q %q\n", quoted(strings.ToUpper(name)), about.Date, app.Name+" "+about.Version, "User Commands")
	help, detail := n.Help, n.Detail
	if n == app.Node {
		help, detail, _ = strings.Cut(n.Help, "\n")
	}
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escaped(name), escaped(strings.TrimSuffix(help, ".")))
	b.WriteString(".SH SYNOPSIS\n.nf\n" + line(usage(app, n)) + ".fi\n")
	if detail, examples, ok := strings.Cut(detail, "Examples:\n"); ok || detail != "" {
		if detail = strings.TrimSpace(detail); detail != "" {
			b.WriteString(".SH DESCRIPTION\n" + prose(detail))
		}
		if ok {
			b.WriteString(".SH EXAMPLES\n.nf\n" + lines(strings.TrimRight(examples, "\n")) + ".fi\n")
		}
	}
	if n == app.Node {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range app.Leaves(true) {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s", escaped(CommandOf(c)), line(c.Help))
			if len(c.Aliases) > 0 {
				b.WriteString(line("Also " + strings.Join(c.Aliases, ", ") + "."))
			}
		}
	}
	options(&b, n, about)
	if n == app.Node {
		fmt.Fprintf(&b, ".SH ENVIRONMENT\nA variable %s and the name of a flag in capitals, with _ for -, sets the flag in all commands. The command line goes before the environment.\n", escaped(about.EnvPrefix))
	} else {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", escaped(app.Name))
	}
	return b.String()
}

// usage returns the form of a command line.
func usage(app *kong.Application, n *kong.Node) string {
	if n == app.Node {
		return app.Name + " <command> [flags]"
	}
	text := app.Name + " " + CommandOf(n)
	for _, p := range n.Positional {
		text += " " + p.Summary()
	}
	return text + " [flags]"
}

// options writes the arguments and flags of a command.
func options(b *strings.Builder, n *kong.Node, about About) {
	if len(n.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
	}
	for _, p := range n.Positional {
		b.WriteString(".TP\n.I " + escaped(p.Name) + "\n" + line(p.Help))
	}
	if len(n.Flags) > 0 {
		b.WriteString(".SH OPTIONS\n")
	}
	for _, f := range n.Flags {
		if f.Hidden {
			continue
		}
		form := f.String()
		if f.Tag != nil && f.Tag.Negatable != "" && f.IsBool() {
			form = strings.Replace(form, "--", "--[no-]", 1)
		}
		b.WriteString(".TP\n.B " + escaped(form) + "\n" + line(f.Help))
		if f.Name != "help" && f.Name != "version" {
			b.WriteString(line("Environment: " + about.EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")) + "."))
		}
	}
}

// prose writes paragraphs. Indented lines, and those of lists, keep their breaks.
func prose(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, "  ") || strings.Contains(p, "\n  ") {
			b.WriteString(".nf\n" + lines(p) + ".fi\n")
		} else {
			b.WriteString(lines(p))
		}
	}
	return b.String()
}

func lines(text string) string {
	var b strings.Builder
	for l := range strings.SplitSeq(text, "\n") {
		b.WriteString(line(l))
	}
	return b.String()
}

// line writes one line of text; an empty one would be a fault in roff, and a leading period or quote a request.
func line(text string) string {
	text = escaped(strings.ReplaceAll(text, "\n", " "))
	switch {
	case text == "":
		return ".sp\n"
	case text[0] == '.' || text[0] == '\'':
		return `\&` + text + "\n"
	}
	return text + "\n"
}

var special = strings.NewReplacer(`\`, `\e`, "-", `\-`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`)

func escaped(text string) string { return nonASCII.ReplaceAllStringFunc(special.Replace(text), glyph) }

var nonASCII = regexp.MustCompile(`[^\x00-\x7f]`)

// glyph returns a character by its number, which every roff prints as the terminal can.
func glyph(s string) string { return fmt.Sprintf(`\[u%04X]`, []rune(s)[0]) }

func quoted(text string) string { return `"` + text + `"` }
