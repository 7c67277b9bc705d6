package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// tableFlags choose the form of a table.
type tableFlags struct {
	JSON     bool `name:"json" xor:"format" help:"Print one JSON object instead of the table."`
	Markdown bool `xor:"format" help:"Print the table in Markdown."`
}

// printJSON prints a value as indented JSON.
func printJSON(v any) error {
	e := json.NewEncoder(terminal.Out())
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeJSON writes a file of indented JSON.
func writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// printReport prints a result as a text table, or as JSON or Markdown.
func printReport(r bench.Report, asJSON, asMarkdown bool) error {
	switch {
	case asJSON:
		return bench.WriteJSON(terminal.Out(), r)
	case asMarkdown:
		return bench.WriteMarkdown(terminal.Out(), r)
	}
	return bench.WriteTable(terminal.Out(), r)
}

// report calls run and shows a progress bar with this label and number of steps meanwhile; run
// calls progress after each step. Then it prints the result after the heading: as JSON (without
// the heading), as Markdown, or as a text table.
func report[R bench.Report](steps int, label, heading string, asJSON, asMarkdown bool, run func(progress func()) (R, error)) error {
	progress, finish := progressBar(steps, label)
	r, err := run(progress)
	finish()
	if err != nil {
		return err
	}
	if heading != "" && !asJSON {
		fmt.Fprintf(terminal.Out(), "%s\n\n", heading)
	}
	return printReport(r, asJSON, asMarkdown)
}
