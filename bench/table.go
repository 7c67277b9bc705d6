package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
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

// orNothing returns progress, or a function that does nothing if progress is nil.
func orNothing(progress func()) func() {
	if progress == nil {
		return func() {}
	}
	return progress
}

// rowsOf returns a row for each field with a row tag of structs of one type: a label, and the value in
// each struct. The tag row:"hit rate|%.2f %%" gives label and format. A format that ends in a per cent
// sign shows a share. After "|omitzero" the row is left out if the value of the first struct is 0.
func rowsOf[T any](structs ...*T) (rows [][]string) {
	for f, first := range reflect.ValueOf(structs[0]).Elem().Fields() {
		label, format, shown := strings.Cut(f.Tag.Get("row"), "|")
		format, omit := strings.CutSuffix(format, "|omitzero")
		if !shown || omit && first.IsZero() {
			continue
		}
		row := []string{label}
		for _, s := range structs {
			value := reflect.ValueOf(s).Elem().FieldByIndex(f.Index).Interface()
			if share, ok := value.(float64); ok && strings.HasSuffix(format, "%%") {
				value = 100 * share
			}
			row = append(row, fmt.Sprintf(format, value))
		}
		rows = append(rows, row)
	}
	return rows
}
