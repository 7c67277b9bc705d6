package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/kv"
)

// doctorCmd is coppice doctor. Flags that serve has too have its defaults and its variables.
type doctorCmd struct {
	JSON     bool     `name:"json" help:"Print one JSON object."`
	Addr     string   `default:"127.0.0.1:8080" env:"COPPICE_ADDR" help:"Address of coppice serve."`
	MaxConns int      `name:"max-conns" default:"8192" min:"1" max:"1<<24" env:"COPPICE_MAX_CONNS" help:"Connections of coppice serve, which need open files."`
	KVTokens int      `name:"kv-tokens" default:"65536" min:"1" env:"COPPICE_KV_TOKENS" help:"Size of the KV pool of coppice serve, in tokens."`
	KVType   kv.DType `name:"kv-type" default:"f32" env:"COPPICE_KV_TYPE" help:"Data type of keys and values: f32, f16, bf16 or q8_0."`
	KVDisk   sizedDir `name:"kv-disk" placeholder:"DIR:SIZE" env:"COPPICE_KV_DISK" help:"Directory of --kv-disk of coppice serve, and its size: check it too."`
	KVShare  sizedDir `name:"kv-share" placeholder:"DIR:SIZE" env:"COPPICE_KV_SHARE" help:"Directory of --kv-share of coppice serve, and its size: check it too."`
}

// severity says how much a finding matters.
type severity string

// The levels.
const (
	fine  severity = "ok"
	warns severity = "warn" // coppice serve works, but slower, or not in all its parts
	fails severity = "fail" // keeps coppice serve from working; the exit status is 1
)

// finding is the judgement of one fact.
type finding struct {
	Check   string   `json:"check"`
	Found   string   `json:"found"`
	Level   severity `json:"level"`
	Problem string   `json:"problem,omitempty"`
	Do      string   `json:"do,omitempty"`
}

// ending returns the end of the finding's line.
func (f *finding) ending() string {
	if f.Level == fine {
		return string(f.Level)
	}
	return fmt.Sprintf("%s: %s: %s", f.Level, f.Problem, f.Do)
}

// Run is called by kong.
func (c *doctorCmd) Run(ctx context.Context) error {
	if err := checkAddr(c.Addr); err != nil {
		return err
	}
	facts := c.look(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	found := facts.judge()
	failed := 0
	for i := range found {
		if found[i].Level == fails {
			failed++
		}
	}
	if c.JSON {
		if err := printJSON(map[string]any{"version": version(), "works": failed == 0, "findings": found}); err != nil {
			return err
		}
	} else if err := writeFindings(terminal.Out(), found); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("serve would not work: %s", counted(failed, "failed check"))
	}
	return nil
}

// Widths of the output, in columns.
const (
	checkWidth = 11
	lineWidth  = 100
)

// writeFindings writes a line for each finding: check, fact and ending, in columns. What does not fit
// into the width of a line continues on the next one.
func writeFindings(w io.Writer, found []finding) error {
	column := 0 // of the endings, from the facts' column on
	for i := range found {
		if n := width(found[i].Found); found[i].Level == fine && checkWidth+n+len("  ok") <= lineWidth {
			column = max(column, n)
		}
	}
	var out strings.Builder
	for i := range found {
		f := &found[i]
		facts := wrapped(f.Found, lineWidth-checkWidth)
		for n, line := range facts {
			if n > 0 {
				f.Check = ""
				out.WriteByte('\n')
			}
			fmt.Fprintf(&out, "%-*s%s", checkWidth, f.Check, line)
		}
		last := width(facts[len(facts)-1])
		gap, end := max(column-last, 0)+2, printable(f.ending())
		if checkWidth+last+gap+width(end) <= lineWidth {
			fmt.Fprintf(&out, "%*s%s\n", gap, "", end)
			continue
		}
		for _, line := range wrapped(end, lineWidth-checkWidth-2) {
			fmt.Fprintf(&out, "\n%*s%s", checkWidth+2, "", line)
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func width(s string) int { return utf8.RuneCountInString(s) }

// printable replaces control characters, which names of files and processes may have.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// wrapped cuts a text at spaces into lines of at most this many columns; a longer word has a line of
// its own.
func wrapped(text string, columns int) []string {
	var lines []string
	line := ""
	for i, word := range strings.Split(printable(text), " ") {
		switch {
		case i == 0:
			line = word
		case width(line)+1+width(word) > columns:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// counted returns a number with its noun, in the plural unless n is 1.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// withDoctor adds a hint to an error whose cause coppice doctor shows.
func withDoctor(err error) error {
	hint := ""
	switch {
	case inUse(err):
		hint = "Give --addr another port. coppice doctor names the process that has this one, if this user may see it."
	case errors.Is(err, syscall.ENOMEM):
		hint = "coppice doctor shows the memory, its limit, and how much of it serve takes."
	default:
		return err
	}
	return fmt.Errorf("%w\n%s", err, hint)
}
