package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Report is a result that can be written as a table.
type Report interface {
	// Rows returns cells by row, and a text to print below the table, which may be
	// empty. The first row is the header in Markdown.
	Rows() (rows [][]string, legend string)
}

// WriteJSON writes a result as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteTable writes a report as right-aligned text columns, for a terminal.
func WriteTable(w io.Writer, r Report) error {
	rows, legend := r.Rows()
	return writeRows(w, rows, legend)
}

// writeRows writes aligned columns, and the legend after an empty line.
func writeRows(w io.Writer, rows [][]string, legend string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t\n", strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil || legend == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", legend)
	return err
}

// WriteMarkdown writes a report as a Markdown table, for bench/results.
func WriteMarkdown(w io.Writer, r Report) error {
	rows, legend := r.Rows()
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|---|" + strings.Repeat("---:|", len(row)-1) + "\n")
		}
	}
	fmt.Fprintf(&b, "\n%s\n", legend)
	_, err := io.WriteString(w, b.String())
	return err
}

// table collects rows of a label and a value.
type table [][]string

func (t *table) row(label, format string, args ...any) {
	*t = append(*t, []string{label, fmt.Sprintf(format, args...)})
}
