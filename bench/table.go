package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeRows writes a table for people: the head, the rows, a legend.
func writeRows(w io.Writer, rows [][]string, legend string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t\n", strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", legend)
	return err
}

// writeMarkdown writes the same in Markdown, to be kept beside its command.
func writeMarkdown(w io.Writer, rows [][]string, legend string) error {
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
