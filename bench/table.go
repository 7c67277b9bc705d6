package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Report is a result that people read as a table.
type Report interface {
	// Rows returns cells by row, and a text to read below them, which may be empty.
	Rows() (rows [][]string, legend string)
}

// WriteJSON writes a result as JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteTable writes a report for people.
func WriteTable(w io.Writer, r Report) error {
	rows, legend := r.Rows()
	return writeRows(w, rows, legend)
}

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

// WriteMarkdown writes a report in Markdown, to be kept beside its command.
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

// table collects rows of a label and values.
type table [][]string

func (t *table) row(label, format string, args ...any) {
	*t = append(*t, []string{label, fmt.Sprintf(format, args...)})
}
